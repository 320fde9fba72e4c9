"""`Pipeline`: a typed step from one input to a list of outputs (or a dict of lists)."""

from __future__ import annotations

import abc
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from beam_pipes.engine.record_context import RecordContext, current_context
from beam_pipes.engine.signature import Signature, check_signature
from beam_pipes.engine.statistic import Statistic
from beam_pipes.errors import InvalidTypeSignatureException

if TYPE_CHECKING:
    from beam_pipes.engine.execute import OnError
    from beam_pipes.typed.key import Key


class Pipeline(abc.ABC):
    """Transforms one input object into a list of outputs, or into a dict of lists.

    Two spellings. The reference's own:

        class SplitWords(Pipeline):
            def __init__(self):
                super().__init__(input_type=str, output_type=str, name='SplitWords')
            def transform(self, line):
                return line.split()

    and a frozen dataclass, whose name is the class's unless it says otherwise:

        @dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
        class SplitWords(Pipeline):
            input_type = str
            output_type = str
            min_length: int = 1
            def transform(self, line):
                return [word for word in line.split() if len(word) >= self.min_length]

    (`eq=False`, because stages are keys of the DAG dict: equal stages would collapse into one entry.)

    Class attributes a stage may set: `version` (raise it when the meaning changes in a way its code does not show),
    `on_error` ("fail", "drop" or "dead_letter"; default: the build's), and a method `transform_batch(inputs)` that
    returns a list with one list of outputs per input, for stages whose work vectorises.

    An instance is not thread-safe: each worker has its own. It must be picklable or importable to leave the process.

    Source: Magenta, "Data processing in Magenta", section Pipeline.
    """

    input_type: Signature
    output_type: Signature
    name: str

    #: What happens to a record on which `transform` raises; None takes the build's policy.
    on_error: OnError | None = None
    #: Whether statistics are what `_set_stats` was given; False for a class that overrides `get_stats`.
    stats_are_set = True

    _stats: Iterable[Statistic] = ()
    _drops: list[str] | None = None
    _calls = 0

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        own = cls.__dict__
        for attribute in ("input_type", "output_type"):
            signature = own.get(attribute)
            if signature is not None and not isinstance(signature, property):
                check_signature(signature, where=f"{cls.__name__}.{attribute}")
        if "name" not in own and isinstance(getattr(cls, "name", cls.__name__), str):
            cls.name = cls.__name__
        if "get_stats" in own:
            cls.stats_are_set = False

    def __init__(
        self,
        input_type: Signature | None = None,
        output_type: Signature | None = None,
        name: str | None = None,
    ) -> None:
        for attribute, signature in (("input_type", input_type), ("output_type", output_type)):
            if signature is not None:
                check_signature(signature, where=f"{type(self).__name__}.{attribute}")
                object.__setattr__(self, attribute, signature)
        if name is not None:
            object.__setattr__(self, "name", name)

    @abc.abstractmethod
    def transform(self, input_object: Any) -> Any:
        """Turns one input into a list of outputs; a dict of lists where `output_type` is a dict."""

    def get_stats(self) -> list[Statistic]:
        """The statistics of the last call of `transform`, their names prefixed with this pipeline's.

        Do not override: call `_set_stats` from `transform`.
        """
        copies = [statistic.copy() for statistic in self._stats]
        for statistic in copies:
            statistic.name = f"{self.name}_{statistic.name}"
        return copies

    def _set_stats(self, stats: Iterable[Statistic]) -> None:
        """Reports statistics of this call of `transform`; they are forgotten before the next record."""
        object.__setattr__(self, "_stats", stats)

    def drop(self, reason: str) -> Any:
        """Nothing as an output, with a reason that is counted: `return self.drop('too_long')`."""
        if self._drops is None:
            object.__setattr__(self, "_drops", [reason])
        else:
            self._drops.append(reason)
        return {key: [] for key in self.output_type} if isinstance(self.output_type, Mapping) else []

    def rng(self) -> np.random.Generator:
        """A generator for this call of `transform`, keyed by (seed, stage, record, epoch).

        What it draws does not depend on sharding, workers, retries or resumption. Two calls of `rng()` within one
        call of `transform` start over with the same numbers.
        """
        return np.random.Generator(np.random.Philox(key=int.from_bytes(self.record_key(), "big")))

    def record_key(self, *, size: int = 16) -> bytes:
        """`size` bytes that identify this call of `transform`: what `rng` is seeded with.

        Outside of a build or a DAG (a direct call) the calls of this instance are numbered instead.
        """
        context = current_context()
        if context is None:
            context = RecordContext(seed=0, unit=self.name)
            context.index = self._calls
            object.__setattr__(self, "_calls", self._calls + 1)
        return context.key(size=size)

    def __getitem__(self, key: str) -> Key:
        """One output of a pipeline with a dict output, to connect in a DAG: `partition['train']`."""
        from beam_pipes.typed.key import Key

        return Key(self, key)

    # A class with __getitem__ would otherwise count as iterable, endlessly.
    __iter__ = None

    def __getstate__(self) -> dict[str, Any]:
        state = dict(self.__dict__)
        state.pop("_stats", None)
        state.pop("_drops", None)
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)


def signature_of(pipeline: Pipeline, attribute: str) -> Signature:
    """`pipeline.input_type` or `.output_type`, checked to be declared and well formed."""
    signature = getattr(pipeline, attribute, None)
    where = f"{type(pipeline).__name__}.{attribute}"
    if signature is None:
        raise InvalidTypeSignatureException(
            f"{where} is not declared. Call super().__init__(input_type=..., output_type=..., name=...), or set it "
            "as a class attribute.",
            stage=type(pipeline).__name__,
        )
    check_signature(signature, where=where)
    return signature  # type: ignore[no-any-return]
