"""Models in stages: loaded once in a process, given batches by tokens or bytes, and smaller ones if memory runs out."""

from __future__ import annotations

import itertools
import os
import sys
import threading
import uuid
from collections.abc import Callable, Iterator, Sequence
from typing import Generic, ParamSpec, TypeVar, cast

from beam_pipes.checks import brief, integer
from beam_pipes.errors import DeclarationError, SourceError
from beam_pipes.sources.record_batch import value_bytes

P = ParamSpec("P")
R = TypeVar("R")

# Results by loader and arguments, and the lock of each: the second thread waits for what the first one loads.
_loaded: dict[tuple[object, ...], list[object]] = {}
_locks: dict[tuple[object, ...], threading.Lock] = {}
# In a forked process models of its parent stay usable, locks that other threads held do not.
os.register_at_fork(after_in_child=_locks.clear)


class LoadOnce(Generic[P, R]):
    """A function whose result every thread of a process shares; see `load_once`."""

    def __init__(self, function: Callable[P, R], token: str | None = None) -> None:
        self.function = function
        self.__name__ = getattr(function, "__name__", "load")
        self.__qualname__ = getattr(function, "__qualname__", self.__name__)
        self.__module__ = function.__module__
        self.__doc__ = function.__doc__
        # Stages that travel by value are unpickled more than once in a process, and share it all the same.
        self._token = token or uuid.uuid4().hex

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        key = (self._token, args, tuple(sorted(kwargs.items())))
        found = _loaded.get(key)
        if found is None:
            with _locks.setdefault(key, threading.Lock()):
                found = _loaded.get(key)
                if found is None:
                    found = _loaded[key] = [self.function(*args, **kwargs)]
        return found[0]  # type: ignore[return-value]

    @property
    def fingerprint_as(self) -> Callable[P, R]:
        """Its identity where code refers to it: the code of its function."""
        return self.function

    def __reduce__(self) -> str | tuple[object, ...]:
        if importable(self.__module__, self.__qualname__) is self:
            return self.__qualname__
        return type(self), (self.function, self._token)


def importable(module: str, qualname: str) -> object:
    """The object of this name in an importable module; None if the module's code travels by value.

    That is `__main__`, which other processes lack, and modules registered with cloudpickle.
    """
    cloudpickle = sys.modules.get("cloudpickle")
    registered = {"__main__", *(cloudpickle.list_registry_pickle_by_value() if cloudpickle is not None else ())}
    packages = itertools.accumulate(module.split("."), "{}.{}".format)
    found: object = None if registered.intersection(packages) else sys.modules.get(module)
    for part in qualname.split("."):
        found = getattr(found, part, None)
    return found


def load_once(function: Callable[P, R]) -> LoadOnce[P, R]:
    """Makes a function that loads something return the same object to every thread of a process.

        @load_once
        def model(weights: str) -> torch.nn.Module: ...

    It runs once for each combination of arguments, which are hashable, when a stage first calls it; other threads wait
    for it. If it raises, the next call tries again. The code of the function is part of the fingerprint of stages that
    call it; weights are, if the stage gets them as an `Asset`.
    """
    return LoadOnce(function)


class Batching(Generic[R]):
    """How a batched stage divides the records that come at once, and calls its function.

    `tokens` limits the number of records times the tokens of the longest, as in a padded array; `bytes_` the sum of
    their sizes, `records` their number. A record that exceeds a limit alone is a batch.
    """

    def __init__(
        self,
        stage: str,
        *,
        tokens: object = None,
        tokens_of: object = None,
        bytes_: object = None,
        records: int | None = None,
    ) -> None:
        self._records = records
        most = {"tokens": tokens, "bytes": bytes_}
        self._tokens, self._bytes = (
            None if value is None else integer(value, least=1, what=f"stage {stage!r}: batch_{name}", stage=stage)
            for name, value in most.items()
        )
        if (tokens is None) != (tokens_of is None) or (tokens_of is not None and not callable(tokens_of)):
            raise DeclarationError(
                "batch_tokens goes with tokens_of, a function that says how many tokens a record has, such as "
                f"tokens_of=len for lists of them; got batch_tokens={brief(tokens)}, tokens_of={brief(tokens_of)}."
            ).about("stage", stage)
        self._stage = stage
        self._tokens_of = cast("Callable[[R], int] | None", tokens_of)
        #: The most records that memory had room for, once it ran out: the next batches need not find that again.
        self._most: int | None = None

    def batches(self, records: Sequence[R]) -> Iterator[Sequence[R]]:
        """The records in their order, cut where one more would exceed a limit."""
        start = longest = total = 0
        for position, record in enumerate(records):
            tokens = 0 if self._tokens_of is None else int(self._tokens_of(record))
            size = 0 if self._bytes is None else self._size(record)
            count = position - start
            longest, total = max(longest, tokens), total + size
            if count and (
                (self._tokens is not None and (count + 1) * longest > self._tokens)
                or (self._bytes is not None and total > self._bytes)
                or count == self._records
            ):
                yield records[start:position]
                start, longest, total = position, tokens, size
        if start < len(records):
            yield records[start:]

    def call(self, function: Callable[[Sequence[R]], list[object]], records: Sequence[R]) -> list[object]:
        """The results for all records; a batch for which memory runs out is halved until it fits or is one record."""
        results: list[object] = []
        for batch in self.batches(records):
            at = 0
            while at < len(batch):
                most = len(batch) if self._most is None else self._most
                part = batch[at : at + most]
                try:
                    results += function(part)
                    at += len(part)
                    continue
                except Exception as error:
                    if len(part) == 1 or not is_out_of_memory(error):
                        raise
                # Outside of the handler: the traceback holds what the failed call had allocated.
                self._most = min(len(part) // 2, self._most or len(part))
        return results

    def _size(self, record: R) -> int:
        try:
            return len(value_bytes(record))
        except SourceError:
            raise DeclarationError(
                "batch_bytes needs records of known size: numbers, text, bytes, arrays, and lists, dicts and "
                f"dataclasses of them; got {brief(record)}. Use batch_tokens=, with a function that knows it."
            ).about("stage", self._stage) from None


def is_out_of_memory(error: BaseException) -> bool:
    """Whether this is how NumPy, torch, JAX or TensorFlow say that memory ran out; imports none of them."""
    if isinstance(error, MemoryError):
        return True
    for cls in type(error).__mro__:
        library = cls.__module__.partition(".")[0]
        if library == "torch" and cls.__name__ == "OutOfMemoryError":
            return True
        if library == "tensorflow" and cls.__name__ == "ResourceExhaustedError":
            return True
        if cls.__name__ in ("JaxRuntimeError", "XlaRuntimeError") and str(error).startswith("RESOURCE_EXHAUSTED"):
            return True
    # torch has no class of its own for the memory of the host.
    return type(error) is RuntimeError and "DefaultCPUAllocator: can't allocate memory" in str(error)
