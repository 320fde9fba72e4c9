"""A Python iterable as the source of samples: fresh passes, its count, and the error it raised."""

from __future__ import annotations

import itertools
import pickle
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from beam_pipes.errors import LoaderError

# A one-shot iterator that is inferred over all its samples is kept in memory up to here, then in a temporary file.
SPOOL_BYTES = 64 * 2**20


class PythonSource:
    """Passes over a generator function, a class, an iterable or a one-shot iterator.

    A one-shot iterator can be passed over once: the samples read for inference come first, none is lost, and a
    second pass is refused. The last error of a pass is kept in `error`, because TensorFlow forwards only its text.
    """

    def __init__(self, python_iterable: Any, n_samples: int | None = None) -> None:
        self.error: BaseException | None = None
        self._open = _opener(python_iterable)
        self.one_shot = not isinstance(python_iterable, type) and isinstance(python_iterable, Iterator)
        self._head: list[Any] = []
        self._spool: _Spool | None = None
        self._started = False
        self._lock = threading.Lock()
        if n_samples is None and not isinstance(python_iterable, type) and hasattr(python_iterable, "__len__"):
            n_samples = len(python_iterable)
        if n_samples is not None and (isinstance(n_samples, bool) or int(n_samples) != n_samples or n_samples < 0):
            raise LoaderError(f"python_iterable_n_samples should be an int of at least 0, got {n_samples!r}.")
        self.declared = None if n_samples is None else int(n_samples)
        self._counted: int | None = None

    @property
    def known_n_samples(self) -> int | None:
        """The number of samples where it was declared, or seen in a whole pass."""
        return self._counted if self.declared is None else self.declared

    def sampled(self, infer_k: int) -> Iterator[Any]:
        """The first `infer_k` samples (all for -1), which the first pass gives again."""
        if not self.one_shot:
            samples = self._open()
            try:
                yield from samples if infer_k == -1 else itertools.islice(samples, infer_k)
            finally:
                _close(samples)
        elif infer_k == -1:
            self._spool = _Spool()
            for sample in self._open():
                self._spool.append(sample)
                yield sample
            self._counted = len(self._spool)
        else:
            for sample in itertools.islice(self._open(), infer_k):
                self._head.append(sample)
                yield sample

    def __iter__(self) -> Iterator[Any]:
        """One pass; a pass that ends is counted, and must have the declared number of samples."""
        samples = self._begin()
        number = 0
        try:
            for sample in samples:
                if number == self.declared:
                    raise LoaderError(
                        f"python_iterable_n_samples is {self.declared}, but the iterable gives more. "
                        "Correct the number, or leave it out."
                    )
                yield sample
                number += 1
        finally:
            _close(samples)
        if self.declared is not None and number != self.declared:
            raise LoaderError(
                f"python_iterable_n_samples is {self.declared}, but the iterable ended after {number}. "
                "Correct the number, or leave it out."
            )
        self._counted = number

    def recording(self, items: Iterator[Any]) -> Iterator[Any]:
        """`items`, made from a pass; what is raised on the way is kept in `error`."""
        try:
            yield from items
        except Exception as error:
            self.error = error
            raise

    def count(self) -> int:
        """The number of samples, by a pass over the iterable where it is not known."""
        if self.known_n_samples is None:
            self.refuse_consuming("count its samples")
            for _ in self:
                pass
        known = self.known_n_samples
        assert known is not None
        return known

    def refuse_consuming(self, purpose: str) -> None:
        """Raises when a pass made only to learn something would use up a one-shot iterator."""
        if self.one_shot and self._spool is None and self._counted is None:
            raise LoaderError(
                f"to {purpose} would use up a one-shot iterator. Pass python_iterable_n_samples, "
                "or a generator function or list, which can be read again."
            )

    def _begin(self) -> Iterator[Any]:
        if not self.one_shot:
            return self._open()
        if self._spool is not None:
            return iter(self._spool)
        with self._lock:
            if self._started:
                raise LoaderError(
                    "a one-shot iterator can be read only once, and reading it has begun before. Pass a generator "
                    "function or an iterable that can be read again, or put .cache() before what reads it again."
                )
            self._started = True
        head, self._head = self._head, []
        return itertools.chain(head, self._open())


def _opener(python_iterable: Any) -> Callable[[], Iterator[Any]]:
    if isinstance(python_iterable, Iterable) and not isinstance(python_iterable, type | str | bytes | dict):
        return lambda: iter(python_iterable)
    if callable(python_iterable):
        return lambda: iter(_checked(python_iterable()))
    raise LoaderError(
        "python_iterable should be a generator function, a class or an iterable of dicts, got "
        f"{type(python_iterable).__name__}."
    )


def _checked(opened: Any) -> Iterable[Any]:
    if not isinstance(opened, Iterable) or isinstance(opened, str | bytes | dict):
        raise LoaderError(
            f"calling python_iterable gave a {type(opened).__name__}, expected something to iterate over. "
            "Use yield in the function, or return an iterable of dicts."
        )
    return opened


def _close(samples: Iterator[Any]) -> None:
    close = getattr(samples, "close", None)
    if callable(close):
        close()


class _Spool:
    """Samples written once and read any number of times; beyond `SPOOL_BYTES` they lie on disk."""

    def __init__(self) -> None:
        self._file = tempfile.SpooledTemporaryFile(max_size=SPOOL_BYTES)
        self._lock = threading.Lock()
        self._end = 0
        self._length = 0

    def __len__(self) -> int:
        return self._length

    def append(self, sample: Any) -> None:
        with self._lock:
            self._file.seek(self._end)
            pickle.dump(sample, self._file, protocol=pickle.HIGHEST_PROTOCOL)
            self._end = self._file.tell()
            self._length += 1

    def __iter__(self) -> Iterator[Any]:
        position = 0
        while position < self._end:
            with self._lock:
                self._file.seek(position)
                sample = pickle.load(self._file)
                position = self._file.tell()
            yield sample
