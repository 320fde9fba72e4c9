"""What the system knows of another process, for whoever looks at it every few milliseconds: 3 µs a look."""

from __future__ import annotations

import contextlib
import os

_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


class ProcessFigures:
    """Memory and waiting time of a process (of its main thread); 0 where the system does not tell, or it is gone."""

    def __init__(self, pid: int) -> None:
        self._memory = _open(f"/proc/{pid}/statm")
        self._schedule = _open(f"/proc/{pid}/task/{pid}/schedstat")
        self._state = _open(f"/proc/{pid}/stat")

    def memory_bytes(self) -> int:
        """Its resident memory."""
        return _field(self._memory, 1) * _PAGE_BYTES

    def waiting_secs(self) -> float:
        """For how long it could have run and was given no core, since it began: what is not its own fault."""
        return _field(self._schedule, 1) * 1e-9

    def is_stopped(self) -> bool:
        """Whether it stands still after SIGSTOP."""
        try:
            return self._state is None or os.pread(self._state, 512, 0).rpartition(b")")[2].split()[0] in (b"T", b"Z")
        except (OSError, IndexError):
            return True

    def close(self) -> None:
        for file in (self._memory, self._schedule, self._state):
            if file is not None:
                os.close(file)
        self._memory = self._schedule = self._state = None


def _open(path: str) -> int | None:
    with contextlib.suppress(OSError):
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    return None


def _field(file: int | None, position: int) -> int:
    if file is not None:
        with contextlib.suppress(OSError, IndexError, ValueError):
            return int(os.pread(file, 256, 0).split()[position])
    return 0
