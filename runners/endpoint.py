"""HOST:PORT: what names a job server or a pool of workers, and whether it is this machine."""

from __future__ import annotations

import ipaddress
import re
import socket

from beam_pipes.errors import DeclarationError

# As gRPC takes it: a name or an IPv4 address, or an IPv6 address in brackets.
_ENDPOINT = re.compile(r"(?P<host>[A-Za-z0-9_.-]+|\[[0-9A-Fa-f:.]+\]):(?P<port>[0-9]{1,5})")


def require_endpoint(runner: str, name: str, value: object, *, example: str) -> str:
    """`value` where it is HOST:PORT, such as `localhost:8099`; raises `DeclarationError` where it is not."""
    found = _ENDPOINT.fullmatch(value) if isinstance(value, str) else None
    if found is None or not 0 < int(found["port"]) < 65536:
        raise DeclarationError(f"{runner}: {name} should be HOST:PORT, such as {example!r}, got {value!r}.")
    return found[0]


def is_this_machine(endpoint: str) -> bool:
    """Whether HOST:PORT is a loopback address or bears this machine's own name. Nothing is looked up."""
    host = endpoint.rpartition(":")[0].strip("[]")
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host in ("localhost", socket.gethostname())
