"""`Pipeline`: a typed step from one input to a list of outputs, or to a dict of lists.

`Key` names one output of a pipeline whose output is a dict; `make_sequence_example` makes the proto of a sequence model
from inputs and labels.
"""

from __future__ import annotations

import abc
import dataclasses
import functools
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from numbers import Number
from types import FunctionType
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import numpy.typing as npt

from beam_pipes.engine.graph import Produced, Signature, check_signature, describe
from beam_pipes.engine.records import Left, RecordContext, current_context, set_context
from beam_pipes.engine.statistics import Statistic, checked_statistics
from beam_pipes.engine.turns import left_in_turn
from beam_pipes.errors import InvalidDAGException, InvalidTypeSignatureException, UnknownKeyException, storable
from beam_pipes.format import messages
from beam_pipes.format.spec import Record

if TYPE_CHECKING:
    from beam_pipes.engine.execute import OnError


class Pipeline(abc.ABC):
    """Transforms one input object into a list of outputs, or into a dict of lists.

    Two spellings. The reference's own:

        class SplitWords(Pipeline):
            def __init__(self):
                super().__init__(input_type=str, output_type=str, name='SplitWords')
            def transform(self, line):
                return line.split()

    and a frozen dataclass, whose name is the class's unless it says otherwise:

        @dataclasses.dataclass(frozen=True, kw_only=True)
        class SplitWords(Pipeline):
            input_type = str
            output_type = str
            min_length: int = 1
            def transform(self, line):
                return [word for word in line.split() if len(word) >= self.min_length]

    Stages compare by identity, dataclasses too: they are keys of the DAG dict, where equal ones would collapse.

    Class attributes a stage may set: `version` (raise it when the meaning changes in a way its code does not show),
    `on_error` ("fail", "drop" or "dead_letter"; default: the build's), `record_timeout_secs` and `record_memory_bytes`
    (how long it may work on one record, and how much memory that may take; default: the build's), `resources` (what a
    call needs of a machine, see `stage`), and a method
    `transform_batch(inputs)` that returns a list with one list of outputs per input, for stages whose work vectorises.
    Where `transform_batch` fails, the inputs are given to `transform` one by one; it cannot draw random numbers.

    The engine runs an instance in one thread at a time: threads of a worker that import it by its name wait for each
    other. A class whose calls keep nothing on `self` says `is_shared = True`, and they do not. An instance must be
    picklable or importable to leave the process.

    Source: Magenta, "Data processing in Magenta", section Pipeline.
    """

    input_type: Signature
    output_type: Signature
    name: str

    #: What happens to a record on which `transform` raises; None takes the build's policy.
    on_error: OnError | None = None
    #: Limits for one record in this stage; None takes the build's, `math.inf` means unlimited.
    record_timeout_secs: float | None = None
    record_memory_bytes: float | None = None
    #: What one call needs of a machine, `{"gpu": 1, "ram_gb": 16}`; None: calls run on all cores. See `stage`.
    resources: Mapping[str, object] | None = None
    #: Whether the statistics are those given to `_set_stats`; False for a class that overrides `get_stats`.
    stats_are_set = True
    #: Whether several threads may run one instance at once: `transform` keeps nothing on `self`.
    is_shared = False

    # Named after the class, so that it is not part of a stage's configuration.
    _left_by_thread: threading.local | None = None

    _bare_transform: ClassVar[Callable[..., object]]

    def __init_subclass__(cls, **kwargs: object) -> None:
        super().__init_subclass__(**kwargs)
        own = cls.__dict__
        for attribute in ("input_type", "output_type"):
            signature = own.get(attribute)
            computed = isinstance(signature, dataclasses.Field) or hasattr(type(signature), "__get__")
            if signature is not None and not computed:
                check_signature(signature, where=f"{cls.__name__}.{attribute}")
        named = "name" in own or "name" in own.get("__annotations__", ())
        if not named and isinstance(getattr(cls, "name", cls.__name__), str):
            cls.name = cls.__name__
        for method in ("__eq__", "__hash__"):
            if getattr(cls, method) is getattr(object, method):  # `dataclass` keeps what the class itself defines
                setattr(cls, method, getattr(object, method))
        transform = cls.transform  # its own, or a mixin's
        if isinstance(transform, FunctionType) and not hasattr(transform, "bare") and not _is_abstract(transform):
            cls.transform = _called_directly(transform)  # type: ignore[method-assign]
            cls._bare_transform = transform  # readers of the class's code find it here
        cls.stats_are_set = cls.get_stats is Pipeline.get_stats

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

    @property
    def output_type_as_dict(self) -> dict[str, type]:
        """`output_type` as a dict of output name → class; a single class is called `dataset`, as in the reference."""
        output_type = signature_of(self, "output_type")
        return dict(output_type) if isinstance(output_type, Mapping) else {"dataset": output_type}

    @abc.abstractmethod
    def transform(self, input_object: Record, /) -> Produced:
        """Turns one input into a list of outputs; a dict of lists where `output_type` is a dict."""

    def get_stats(self) -> list[Statistic]:
        """The statistics of the last call of `transform`, their names prefixed with this pipeline's.

        Do not override: call `_set_stats` from `transform`.
        """
        left = self._left()
        copies = [statistic.copy() for statistic in (*left.get("_stats", ()), *left.get("_counted", ()))]
        for statistic in copies:
            statistic.name = f"{self.name}_{statistic.name}"
        return copies

    def _set_stats(self, stats: Iterable[Statistic]) -> None:
        """Reports statistics of this call of `transform`; they are forgotten before the next one.

        Raises `InvalidStatisticsException` if `stats` is not an iterable of `Statistic`.
        """
        self._left()["_stats"] = checked_statistics(stats, where=f"stage {self.name!r}: _set_stats")

    def drop(self, reason: str) -> Produced:
        """No output, with a reason that is counted: `return self.drop('too_long')`."""
        self._left().setdefault("_drops", []).append(storable(reason) if isinstance(reason, str) else reason)
        return {key: [] for key in self.output_type} if isinstance(self.output_type, Mapping) else []

    def _left(self) -> Left:
        """What the running call of this stage leaves behind, or what the last direct call in this thread left."""
        context = current_context()
        if context is not None and context.stage is self:
            return context.left
        # A thread started by `transform` has no context of its own.
        running = left_in_turn(self)
        return self.left_directly() if running is None else running

    @property
    def _drops(self) -> Sequence[str]:
        reasons: Sequence[str] = self._left().get("_drops", ())
        return reasons

    def left_directly(self) -> Left:
        """What direct calls in this thread leave behind."""
        # Bypasses `__setattr__`: a stage may be frozen.
        by_thread = self._left_by_thread
        if by_thread is None:
            by_thread = self.__dict__.setdefault("_left_by_thread", threading.local())
        return by_thread.__dict__

    def rng(self) -> np.random.Generator:
        """A generator for this call of `transform`, keyed by (seed, stage, record, epoch).

        What it draws does not depend on sharding, workers, retries or resumption. Two calls of `rng()` within one
        call of `transform` start over with the same numbers.
        """
        return generator_of(self.record_key())

    def record_key(self, *, size: int = 16) -> bytes:
        """`size` bytes that identify this call of `transform`: what `rng` is seeded with.

        In a direct call, outside of a build or a DAG, the record's id is the number of the call, from 0.
        """
        context = current_context() or RecordContext(seed=0, unit=self.name)
        return context.key(size=size)

    def __getitem__(self, key: str) -> Key:
        """One output of a pipeline with a dict output, to connect in a DAG: `partition['train']`."""
        pass

        return Key(self, key)

    # A class with __getitem__ would otherwise count as iterable, endlessly.
    __iter__ = None

    def __getstate__(self) -> dict[str, object]:
        return {name: value for name, value in self.__dict__.items() if name != "_left_by_thread"}

    def __setstate__(self, state: dict[str, object]) -> None:
        self.__dict__.update(state)


class _RecordSeed:
    """A record's key as Philox's own: a third of the time of `Philox(key=...)`, which also seeds what it replaces."""

    def __init__(self, record_key: bytes) -> None:
        self._record_key = record_key

    def generate_state(self, n_words: int, dtype: npt.DTypeLike = np.uint32) -> np.ndarray:
        return np.frombuffer(self._record_key, dtype=np.dtype(dtype).newbyteorder("<"), count=n_words).astype(dtype)


@functools.cache
def _philox() -> Callable[[_RecordSeed], np.random.Philox]:
    # NumPy's random numbers take 13 ms to import, and few commands draw any: their base is no base class above.
    from numpy.random.bit_generator import ISeedSequence

    ISeedSequence.register(_RecordSeed)
    return np.random.Philox  # type: ignore[return-value]


def generator_of(record_key: bytes) -> np.random.Generator:
    """The generator for one call of a stage, which `record_key` identifies."""
    return np.random.Generator(_philox()(_RecordSeed(record_key)))


def _called_directly(transform: Callable[..., object]) -> Callable[..., object]:
    """`transform` for direct calls: it forgets what the previous call left, and keys draws.

    The engine prepares its calls itself and runs `bare`; so does `super().transform(...)` in effect.
    """

    @functools.wraps(transform)
    def call(self: Pipeline, *args: object, **kwargs: object) -> object:
        outer = current_context()
        if outer is not None and outer.stage is self:
            return transform(self, *args, **kwargs)
        own = self.left_directly()
        own.pop("_stats", None)
        own.pop("_counted", None)
        own.pop("_drops", None)
        if outer is None:
            context = RecordContext(seed=0, unit=self.name, stage=self, direct=True)
            context.index = own.get("_calls", 0)
            own["_calls"] = context.index + 1
        else:  # a stage that calls another one: still the same record
            unit = f"{outer.unit}/{self.name}"
            context = RecordContext(seed=outer.seed, unit=unit, epoch=outer.epoch, stage=self, direct=outer.direct)
            context.record_id_of, context.index, context.item = outer.record_id_of, outer.index, outer.item
            context.content_of = outer.content_of
        context.left = own
        previous = set_context(context)
        try:
            return transform(self, *args, **kwargs)
        finally:
            set_context(previous)
            if context.counted is not None:
                own["_counted"] = list(context.counted.values())

    call.bare = transform  # type: ignore[attr-defined]
    return call


def _is_abstract(method: Callable[..., object]) -> bool:
    return getattr(method, "__isabstractmethod__", False)


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


class Key:
    """`Key(partition, 'train')`, usually written `partition['train']`: a dependency on a single output."""

    def __init__(self, unit: Pipeline, key: str) -> None:
        if not isinstance(unit, Pipeline):
            raise InvalidDAGException(f"Key expects a Pipeline, got {type(unit).__name__}: {unit!r}.")
        output_type = signature_of(unit, "output_type")
        if not isinstance(output_type, Mapping):
            raise UnknownKeyException(
                f"{unit.name!r}[{key!r}]: the output of {unit.name!r} is {describe(output_type)}, which has no keys. "
                "Use the pipeline itself as the dependency.",
                stage=unit.name,
            )
        if key not in output_type:
            raise UnknownKeyException(
                f"{unit.name!r}[{key!r}]: no such output; choose one of {sorted(output_type)}.", stage=unit.name
            )
        self.unit = unit
        self.key = key
        self.output_type: type = output_type[key]

    def __repr__(self) -> str:
        return f"{self.unit.name}[{self.key!r}]"


def make_sequence_example(
    inputs: Iterable[Sequence[float]], labels: Iterable[int | Sequence[int]]
) -> messages.SequenceExample:
    """A `SequenceExample` with the feature lists `inputs` (float, one vector per step) and `labels` (int64, one or
    several per step).

    The message is wire-compatible with `tf.train.SequenceExample` and needs no TensorFlow.

        make_sequence_example([[0.0, 1.0], [1.0, 0.0]], [1, 0])
          → feature_lists {inputs: [[0, 1], [1, 0]], labels: [[1], [0]]}

    Source: Magenta, `make_sequence_example`.
    """
    example = messages.SequenceExample()
    lists = example.feature_lists.feature_list
    features = lists["inputs"].feature  # naming a list creates it, even an empty one
    for vector in inputs:
        features.add().float_list.value.extend(map(float, vector))
    features = lists["labels"].feature
    for label in labels:
        steps: Any = [label] if isinstance(label, Number) else label
        features.add().int64_list.value.extend(map(int, steps))
    return example
