"""Registries: providers by name. The registry of tasks is here, that of mixtures beside the mixture.

On request, records who registers what: `turn_on_tracking`, `view_provenances`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import FrameType
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

from beam_pipes.checks import nearest
from beam_pipes.errors import TaskError, UnknownNameError
from beam_pipes.extras import TfDataset
from beam_pipes.tasks.providers.task import Task
from beam_pipes.tasks.steps.features import DatasetProviderBase, Feature, SequenceLength, ShardInfo, SourceInfo
from beam_pipes.tasks.steps.signatures import MetricFn, Postprocessor

if TYPE_CHECKING:
    from beam_pipes.tasks.sources.data_source import DataSourceInterface

P = TypeVar("P", bound=DatasetProviderBase)


class DatasetProviderRegistry(Generic[P]):
    """Base of registries. A subclass has its own `_REGISTRY` and declares its class of objects in `_PROVIDER_TYPE`."""

    _REGISTRY: ClassVar[dict[str, Any]] = {}
    _PROVIDER_TYPE: ClassVar[type] = DatasetProviderBase

    @classmethod
    def add_provider(cls, name: str, provider: object) -> None:
        """Registers an object under a name.

        Raises:
            TaskError: the name is taken, or the object has the wrong type.
        """
        if name in cls._REGISTRY:
            raise TaskError(
                f"Attempting to register duplicate provider: {name}{_declared_at(cls._REGISTRY[name])}. Choose another "
                f"name, or remove the first one: {cls.__name__}.remove({name!r})",
                name=name,
            )
        if not isinstance(provider, cls._PROVIDER_TYPE):
            raise TaskError(
                f"Attempting to register a class of an invalid type. Expecting instance of {cls._PROVIDER_TYPE}, got "
                f"{type(provider).__name__}",
                name=name,
            )
        cls._REGISTRY[name] = provider
        maybe_record_provenance(sys._getframe(), name, type(provider).__name__)

    @classmethod
    def add(cls, name: str, provider_cls: type[P], provider_kwargs: Mapping[str, object]) -> P:
        """Makes an object of a class and its arguments, and registers it; for registries of other kinds.

        Raises:
            TaskError: the name is taken, or the class has the wrong type.
        """
        if not issubclass(provider_cls, cls._PROVIDER_TYPE):
            raise TaskError(
                f"Attempting to register a class of an invalid type. Expecting instance of {cls._PROVIDER_TYPE}, got "
                f"{provider_cls}",
                name=name,
            )
        make: Callable[..., P] = provider_cls
        provider = make(**provider_kwargs)
        cls.add_provider(name, provider)
        return provider

    @classmethod
    def remove(cls, name: str) -> None:
        """Removes a name; unknown names are ignored."""
        cls._REGISTRY.pop(name, None)

    @classmethod
    def get(cls, name: str) -> P:
        """The object of a name.

        Raises:
            UnknownNameError: it does not exist; the message lists similar names.
        """
        if name not in cls._REGISTRY:
            raise UnknownNameError(f"Provider name not registered: {name}.{registered(name, cls._REGISTRY)}", name=name)
        provider: P = cls._REGISTRY[name]
        return provider

    @classmethod
    def names(cls) -> Iterable[str]:
        """All names."""
        return cls._REGISTRY.keys()

    @classmethod
    def reset(cls) -> None:
        """Forgets all names. For tests."""
        cls._REGISTRY.clear()

    @classmethod
    def get_dataset(
        cls,
        name: str,
        sequence_length: SequenceLength | None,
        split: str,
        use_cached: bool = False,
        shuffle: bool = True,
        seed: int | None = None,
        shard_info: ShardInfo | None = None,
        num_epochs: int | None = 1,
    ) -> TfDataset:
        """`get_dataset` of the object of a name."""
        return cls.get(name).get_dataset(
            sequence_length=sequence_length,
            split=split,
            use_cached=use_cached,
            shuffle=shuffle,
            seed=seed,
            shard_info=shard_info,
            num_epochs=num_epochs,
        )


class TaskRegistry(DatasetProviderRegistry[Task]):
    """Tasks by name."""

    _REGISTRY: ClassVar[dict[str, object]] = {}
    _PROVIDER_TYPE: ClassVar[type] = Task

    @classmethod
    def add(  # type: ignore[override]
        cls,
        name: str,
        source: DataSourceInterface,
        output_features: Mapping[str, Feature],
        preprocessors: Sequence[object] | None = None,
        postprocess_fn: Postprocessor | None = None,
        metric_fns: Sequence[MetricFn] | None = None,
        metric_objs: Sequence[object] | None = None,
        task_cls: type[Task] = Task,
        source_info: SourceInfo | None = None,
        **kwargs: object,
    ) -> Task:
        """Makes a `Task` (or `task_cls`) of the arguments and registers it. Returns the task."""
        make: Callable[..., Task] = task_cls
        task = make(
            name,
            source=source,
            output_features=output_features,
            preprocessors=preprocessors,
            postprocess_fn=postprocess_fn,
            metric_fns=metric_fns,
            metric_objs=metric_objs,
            source_info=source_info or caller(),
            **kwargs,
        )
        cls.add_provider(name, task)
        return task


def registered(name: str, names: Iterable[str]) -> str:
    """What is registered instead of `name`: ` Did you mean 'wmt_de'?`, or some of the names if none is close."""
    known = sorted(names)
    if not known:
        return " Nothing is registered: import the module that declares it."
    listed = f"{', '.join(known[:10])}{', …' if len(known) > 10 else ''}"
    return nearest(name, known) or f" Registered are: {listed}."


def caller() -> SourceInfo:
    """File and line of the call of `add`."""
    frame = sys._getframe(2)
    return SourceInfo(frame.f_code.co_filename, frame.f_lineno)


def _declared_at(provider: object) -> str:
    info = getattr(provider, "source_info", None)
    return f" (declared at {info.file_path}:{info.line_number})" if info and info.has_meaningful_info() else ""


# Name → kind of provider, and the calls that led to its registration; None while tracking is off.
_provenances: dict[str, tuple[str, list[str]]] | None = None
_MAX_CALLS = 5


def turn_on_tracking() -> None:
    """Starts recording the calls that register tasks or mixtures; earlier records are discarded.

    Tasks are registered where modules are imported, often in loops of functions of other modules: `view_provenances()`
    then says which lines did it, `{"wmt_de": ("Task", ["my/registry.py:17", "my/tasks.py:203"])}`.
    """
    global _provenances
    _provenances = {}


def registration_provenance_tracking_is_on() -> bool:
    return _provenances is not None


def maybe_record_provenance(frame: FrameType, name: str, provider_type: str) -> None:
    """Keeps the calls above `frame`, if tracking is on."""
    if _provenances is not None:
        _provenances[name] = (provider_type, informative_upstream_callsites_from_frame(frame))


def informative_upstream_callsites_from_frame(
    cur_frame: FrameType | None, max_num_frames: int = _MAX_CALLS
) -> list[str]:
    """`file:line` of the calls above a frame, the nearest first, without this library and the machinery of imports."""
    calls: list[str] = []
    while cur_frame is not None and len(calls) < max_num_frames:
        module = str(cur_frame.f_globals.get("__name__", ""))
        path = cur_frame.f_code.co_filename
        if not module.startswith("beam_pipes.tasks.") and "importlib" not in path:
            calls.append(f"{path}:{cur_frame.f_lineno}")
        cur_frame = cur_frame.f_back
    return calls


def view_provenances() -> dict[str, tuple[str, list[str]]]:
    """A copy of what was kept; empty while tracking is off."""
    return dict(_provenances or {})
