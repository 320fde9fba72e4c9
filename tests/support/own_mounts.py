"""Commands with their own temporary mounts: a small disk, a read-only directory.

Needs no root if user namespaces are allowed. Otherwise the nearest equivalents are used: a limit on the size of files
for the small disk, permission bits for the read-only directory.
"""

from __future__ import annotations

import functools
import os
import shlex
import subprocess
import sys
from pathlib import Path


@functools.cache
def can_mount() -> bool:
    """Whether this machine allows a test to mount something in its own namespace."""
    tried = ["unshare", "--map-root-user", "--mount", "mount", "-t", "tmpfs", "tmpfs", "/mnt"]
    try:
        return subprocess.run(tried, capture_output=True).returncode == 0
    except FileNotFoundError:
        return False


def run_with_small_disk(directory: Path, code: str, *, kib: int) -> subprocess.CompletedProcess[str]:
    """Runs Python code that finds a disk of `kib` KiB at `directory`; `more_room()` gives it all it needs."""
    if can_mount():
        setup = f"mount -t tmpfs -o size={kib}k tmpfs {shlex.quote(str(directory))}"
        remount = ["mount", "-o", "remount,size=64m", str(directory)]
        more = f"import subprocess\ndef more_room(): subprocess.run({remount!r}, check=True)\n"
        return _in_namespace(setup, more + code)
    limit = (
        "import resource\n"
        f"resource.setrlimit(resource.RLIMIT_FSIZE, ({min(kib, 2)} << 10, resource.RLIM_INFINITY))\n"
        "def more_room(): resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))\n"
    )
    return _python([sys.executable, "-c", limit + code])


def run_with_read_only(directory: Path, code: str) -> subprocess.CompletedProcess[str]:
    """Runs Python code that may not write below `directory`."""
    if can_mount():
        path = shlex.quote(str(directory))
        return _in_namespace(f"mount --bind {path} {path} && mount -o remount,ro,bind {path}", code)
    # Permission bits bind root only without the capability to override them.
    bound = ["setpriv", "--bounding-set=-dac_override"] if os.geteuid() == 0 else []
    directory.chmod(0o555)
    try:
        return _python([*bound, sys.executable, "-c", code])
    finally:
        directory.chmod(0o755)


def _in_namespace(setup: str, code: str) -> subprocess.CompletedProcess[str]:
    shell = f"{setup} && exec {shlex.quote(sys.executable)} -c {shlex.quote(code)}"
    return _python(["unshare", "--map-root-user", "--mount", "sh", "-c", shell])


def _python(command: list[str]) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
