"""Type signatures: a class, or a one-level dict of name to class."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from beam_pipes.errors import InvalidTypeSignatureException

# A class, or {'name': class, ...}.
Signature = type | Mapping[str, type]


def check_signature(signature: Any, *, where: str) -> None:
    """Raises `InvalidTypeSignatureException` unless `signature` is a class or a one-level dict of name to class."""
    if _is_class(signature):
        return
    if isinstance(signature, Mapping):
        if not signature:
            raise InvalidTypeSignatureException(
                f"{where} should be a class or a dict of name to class, got an empty dict. Name at least one value.",
                found=signature,
            )
        for name, type_ in signature.items():
            if not isinstance(name, str):
                raise InvalidTypeSignatureException(
                    f"{where} should map names (str) to classes, got the key {name!r}.", found=signature
                )
            if not _is_class(type_):
                nested = isinstance(type_, Mapping)
                raise InvalidTypeSignatureException(
                    f"{where}[{name!r}] should be a class, got {type_!r}. "
                    f"{'Signatures nest one level only.' if nested else _ADVICE}",
                    found=signature,
                )
        return
    raise InvalidTypeSignatureException(
        f"{where} should be a class or a dict of name to class, got {signature!r} ({type(signature).__name__}). "
        f"{_ADVICE}",
        found=signature,
    )


_ADVICE = "Use a class that isinstance() accepts: list for list[int], object for anything."


def _is_class(type_: Any) -> bool:
    """Whether `isinstance(value, type_)` works: `list[int]`, `typing.Any` and most protocols are refused."""
    try:
        isinstance(None, type_)
    except TypeError:
        return False
    return isinstance(type_, type)


def describe(signature: Signature) -> str:
    """A signature in words: `str`, or `{'tokens': ndarray, 'path': str}`."""
    if isinstance(signature, Mapping):
        return "{" + ", ".join(f"{name!r}: {type_.__name__}" for name, type_ in signature.items()) + "}"
    return signature.__name__


def mismatch(value: Any, signature: Signature) -> str | None:
    """Why `value` does not match `signature` in words, or None where it matches."""
    if isinstance(signature, Mapping):
        if not isinstance(value, Mapping):
            return f"expected a dict with the keys {sorted(signature)}, got {brief(value)}"
        if value.keys() != signature.keys():
            return f"expected a dict with the keys {sorted(signature)}, got the keys {sorted(map(str, value))}"
        for name, type_ in signature.items():
            if not isinstance(value[name], type_):
                return f"expected {type_.__name__} for {name!r}, got {brief(value[name])}"
        return None
    if not isinstance(value, signature):
        return f"expected {signature.__name__}, got {brief(value)}"
    return None


def brief(value: Any, *, limit: int = 80) -> str:
    """The type and the beginning of the repr of a value, for messages: `int: 1`."""
    text = repr(value)
    if len(text) > limit:
        text = text[: limit - 1] + "…"
    return f"{type(value).__name__}: {text}"
