"""`GcsOptions`: how Google Cloud Storage is spoken to."""

from __future__ import annotations

import dataclasses
import os

from beam_pipes.errors import StorageError

PREFIX = "BEAM_PIPES_GCS_"


@dataclasses.dataclass(frozen=True, kw_only=True)
class GcsOptions:
    """How Google Cloud Storage is spoken to. Workers find the same options in the environment: see `from_environment`.

    Args:
        anonymous: send no credentials; for public buckets, and to look for none on a machine that has none.
        deadline_secs: how long one operation (a request, a chunk of an upload) is tried again before it is an error.
            Five minutes outlast what the service calls a transient failure, and bound what a build waits for nothing.
        attempt_timeout_secs: after how long without a byte, or without an end, an attempt counts as failed.
        most_backoff_secs: the longest pause between two attempts; pauses double up to it, and are drawn at random.
        chunk_bytes: a resumable upload sends this much at once, and a reader reads ahead this much: what a broken
            connection costs, and what each open file takes of memory. A multiple of 256 KiB.
        num_threads: requests at once where many files are listed, copied or deleted.
        page_names: names in a page of a listing; the service gives a thousand at most.
        lease_secs: the build lock ends this long after its holder was last heard of.
    """

    anonymous: bool = False
    deadline_secs: float = 300.0
    attempt_timeout_secs: float = 60.0
    most_backoff_secs: float = 30.0
    chunk_bytes: int = 8 << 20
    num_threads: int = 16
    page_names: int = 1000
    lease_secs: float = 60.0

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if field.name != "anonymous" and not value > 0:
                raise StorageError(f"{field.name} should be positive, got {value!r}.")
        if self.chunk_bytes % (256 << 10):
            raise StorageError(f"chunk_bytes should be a multiple of {256 << 10} (256 KiB), got {self.chunk_bytes}.")

    @classmethod
    def from_environment(cls) -> GcsOptions:
        """Each option from `BEAM_PIPES_GCS_<OPTION>`, where that is set.

        `BEAM_PIPES_GCS_ANONYMOUS=1 BEAM_PIPES_GCS_DEADLINE_SECS=60` → `GcsOptions(anonymous=True, deadline_secs=60.0)`.
        Raises `StorageError` for a value that is none.
        """
        found: dict[str, bool | int | float] = {}
        for field in dataclasses.fields(cls):
            name = PREFIX + field.name.upper()
            text = os.environ.get(name)
            if text is None:
                continue
            try:
                if field.type == "bool":
                    found[field.name] = {"1": True, "true": True, "0": False, "false": False, "": False}[text.lower()]
                else:
                    found[field.name] = int(text) if field.type == "int" else float(text)
            except (KeyError, ValueError):
                expected = {"bool": "0 or 1", "int": "an int", "float": "a number"}[str(field.type)]
                raise StorageError(f"the variable {name} should be {expected}, got {text!r}.") from None
        return cls(**found)  # type: ignore[arg-type]
