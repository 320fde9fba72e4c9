"""`stage`: a function as a stage of a pipeline.

The first parameter of the function is the record, its annotations are the types, its other parameters are options or
what the engine knows about the record (`rng`, `record_id`). It returns one output, `None` or `drop("reason")` for
none, or yields any number.
"""

from __future__ import annotations

import difflib
import functools
import inspect
import types
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, NoReturn, ParamSpec, TypeVar, cast, overload

from beam_pipes.engine.account import NO_OUTPUT
from beam_pipes.engine.graph import Signature, beam_transform_advice, brief
from beam_pipes.engine.ownership import taken
from beam_pipes.engine.records import Left, RecordContext, Table, current_context
from beam_pipes.engine.resources import Resources
from beam_pipes.engine.stage_values import Direct
from beam_pipes.errors import DeclarationError, InvalidTransformOutputException, InvalidTypeSignatureException
from beam_pipes.format.spec import UNCHANGEABLE, Record
from beam_pipes.typed.annotated import (
    Classes,
    Given,
    describe_classes,
    fields_of,
    given_classes,
    has_fields,
    only_yields,
    parameters_of,
    single_class,
    taken_classes,
)
from beam_pipes.typed.models import Batching, importable
from beam_pipes.typed.pipeline import Pipeline, generator_of
from beam_pipes.typed.services import Caller, Service
from beam_pipes.typed.while_running import Drop

if TYPE_CHECKING:
    from beam_pipes.engine.execute import OnError

P = ParamSpec("P")
R = TypeVar("R")

# Parameters that the engine fills in, by name. A batch has no single record for them to refer to.
_FILLED_IN: Mapping[str, Callable[[RecordContext], Any]] = {
    "rng": lambda context: generator_of(context.key()),
    "record_id": lambda context: context.record_id,
}

# The parameters of `stage(...)` itself; every other keyword is an option of the function.
_BATCHING = ("batch_tokens", "tokens_of", "batch_bytes")
_OF_RECORDS = ("on_error", "record_timeout_secs", "record_memory_bytes")
_OWN_OPTIONS = ("name", "version", *_OF_RECORDS, "resources", "service", *_BATCHING)


class FunctionStage(Pipeline, Generic[P, R]):
    """A function as a stage, made by the decorator `@stage`. Calling it calls the function.

        @stage
        def tokenize(line: str, *, min_length: int = 1) -> dict[str, object]: ...

        tokenize("to be")              → what the function returns, for tests
        tokenize.bind(min_length=3)    → a stage of the same name with this option
        tokenize.transform("to be")    → a list of outputs, as every stage gives
        tokenize.get_stats()           → what that call has counted

    It never changes: `bind` makes another one. It is pickled by name if its module can be imported.
    """

    name: str
    #: Whether the function takes a list of records.
    batched = False
    service: Service | None = None

    def __init__(self, function: Callable[P, R], *, name: str | None = None) -> None:
        if isinstance(function, functools.partial):
            raise TypeError("a partial is bound by as_stage")
        if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function):
            raise InvalidTypeSignatureException(
                f"stage {function.__name__}: expected a function, got an async function. Write `def`: builds run in "
                "processes, side by side.",
                stage=function.__name__,
            )
        own_name = getattr(function, "__name__", type(function).__name__)
        functools.update_wrapper(self, function)
        self.__name__ = own_name
        self.__qualname__ = getattr(function, "__qualname__", own_name)
        self.__module__ = getattr(function, "__module__", None) or "builtins"
        self.function = function
        #: Threads may share it, as they share functions; a method belongs to an object that may have state.
        self.is_shared = not isinstance(function, types.MethodType)
        self.options: Mapping[str, Any] = {}
        self.name = own_name if name is None else name
        self.types: tuple[type, type] | None = None  # if the place in a pipeline says more than annotations
        self.gives_fields = False  # whether outputs become dicts of their fields
        parameters = parameters_of(function, self.name)
        self._parameters = parameters
        self._filled = tuple(name for name in [*parameters][1:] if name in _FILLED_IN)
        self._check_parameters()

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return self.function(*args, **{**self.options, **kwargs})

    def __repr__(self) -> str:
        options = "".join(f", {name}={value!r}" for name, value in self.options.items())
        return f"stage({self.__module__}.{self.__qualname__}{options})"

    # Options.

    def bind(self, **options: object) -> FunctionStage[..., R]:
        """The same stage with options: `tokenize.bind(min_length=3)`.

        Raises `DeclarationError` for an option that the function does not have; it lists the existing ones.
        """
        known = self._option_names()
        takes_any = any(each.kind is each.VAR_KEYWORD for each in self._parameters.values())
        for option in options:
            if option in self._filled:
                raise DeclarationError(
                    f"{option!r} is given by the engine, for each record; it cannot be bound. Call the parameter "
                    "something else if it is an option."
                ).about("stage", self.name)
            if option not in known and not takes_any:
                near = difflib.get_close_matches(option, known, n=1)
                advice = f"Did you mean {near[0]!r}? " if near else ""
                has = f"its options are {', '.join(known)}" if known else "it has none"
                raise DeclarationError(
                    f"stage {self.name!r} has no option {option!r}: {has}. {advice}Write stage({self.__name__}"
                    f"{''.join(f', {name}=…' for name in near or known[:1])}), or give the function a parameter "
                    f"{option!r}.",
                    stage=self.name,
                )
        return self.changed(options={**self.options, **options})

    def changed(self, **attributes: object) -> FunctionStage[..., R]:
        """A copy with other attributes, such as `name` or `on_error`."""
        made = cast(
            "FunctionStage[..., R]", object.__new__(type(self))
        )  # not `copy`, which does not copy importable objects
        vars(made).update({**self.__getstate__(), **attributes})
        for name in ("_batching", "_caller"):  # made of what may have changed
            vars(made).pop(name, None)
        return made

    def missing_options(self) -> list[str]:
        """The parameters without a default to which nothing is bound."""
        return [name for name in self._option_names() if name not in self.options and self._is_required(name)]

    def require_options(self) -> None:
        """Raises `DeclarationError` if an option without a default is not bound."""
        missing = self.missing_options()
        if missing:
            raise DeclarationError(
                f"stage {self.name!r} needs {', '.join(map(repr, missing))}: write "
                f"stage({self.__name__}, {', '.join(f'{name}=…' for name in missing)}), or give "
                f"{'it' if len(missing) == 1 else 'them'} a default.",
                stage=self.name,
            )

    def _option_names(self) -> list[str]:
        names = [*self._parameters][1:]
        variable = (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)
        return [n for n in names if n not in self._filled and self._parameters[n].kind not in variable]

    def _is_required(self, name: str) -> bool:
        return self._parameters[name].default is inspect.Parameter.empty

    def _check_parameters(self) -> None:
        for name in self._option_names():
            if self._parameters[name].kind is inspect.Parameter.POSITIONAL_ONLY and self._is_required(name):
                raise InvalidTypeSignatureException(
                    f"the parameter {name!r} can only be given by position, and a stage is called with the record "
                    "alone. Write it after a `*`, as an option."
                ).about("stage", self.name)

    # Types.

    @functools.cached_property
    def takes(self) -> Classes | None:
        """The classes of record that the function takes; None if it is not annotated."""
        return taken_classes(self.function, self.name, batched=self.batched)

    @functools.cached_property
    def gives(self) -> Given:
        """What the function says it returns."""
        return given_classes(self.function, self.name, batched=self.batched)

    @property
    def input_type(self) -> Signature:  # type: ignore[override]
        if self.types is not None:
            return self.types[0]
        taken = self.takes
        if taken is None:
            raise self.missing_annotation("takes")
        return single_class(taken)

    @property
    def output_type(self) -> Signature:  # type: ignore[override]
        if self.types is not None:
            return self.types[1]
        given = self.gives.classes
        if given is None:
            raise self.missing_annotation("returns")
        return single_class(given)

    def missing_annotation(self, what: str) -> InvalidTypeSignatureException:
        """The error that says which line to write."""
        first = next(iter(self._parameters.values()))
        record, result = f"{first.name}: str", "dict[str, object]"
        if self.batched:
            record, result = f"{first.name}: list[str]", "list[dict[str, object]]"
        name = self.__name__ if self.__name__.isidentifier() else "tokenize"  # a lambda's name cannot be written
        return InvalidTypeSignatureException(
            f"stage {self.name!r} does not say what it {what}, and no neighbouring stage in the pipeline does. Write "
            f"`def {name}({record}) -> {result}:`, with the types of its record and of its result.",
            stage=self.name,
        )

    @property
    def advice_on_output(self) -> str:
        """Advice for an output of another type than declared; for the engine's messages."""
        if self.gives.classes is None and self.types is not None:
            expected = describe_classes((self.types[1],))
            return f"Return {expected} from {self.__name__}(), or annotate what it returns."
        return f"Return {describe_classes(self.gives.classes)} from {self.__name__}(), or change its annotation."

    # Running.

    def transform(self, input_object: Record) -> list[object]:
        """The outputs for one record, as a list."""
        given: dict[str, Any] = {}
        if self._filled:
            context = current_context()
            assert context is not None  # set by whoever calls `transform`, see `Pipeline`
            given = {name: _FILLED_IN[name](context) for name in self._filled}
        return self._outputs(self.function(input_object, **self.options, **given))

    def direct(self) -> Direct | None:
        """The function with its options, and what `transform` does with its results; None if a call needs more."""
        if self._filled or self.batched or self.service is not None:
            return None
        function = functools.partial(self.function, **self.options) if self.options else self.function
        of_class = self.output_type if isinstance(self.output_type, type) and not self.gives_fields else None
        if not self.gives.several:
            return Direct(function, self._outputs, of_class)
        is_fixed = of_class in UNCHANGEABLE and of_class is not type(None)
        yields = of_class if is_fixed and only_yields(self.function) else None
        return Direct(function, self._outputs, yields=yields)

    def _outputs(self, produced: object, context: RecordContext | None = None) -> list[object]:
        """The outputs of one call as a list; reasons of drops go to the engine, in `context`."""
        if produced is None:
            return []
        if type(produced) is Drop:
            _leave(produced, context)
            return []
        if not self.gives.several:
            return [self._fields(produced)] if self.gives_fields else [produced]
        outputs: list[object] = []
        is_list, gives_fields = isinstance(produced, list | tuple), self.gives_fields
        for one in _with_result(produced) if type(produced) is types.GeneratorType else self._each(produced):
            if type(one) is Drop:
                _leave(one, context)
            elif one is not None:
                if gives_fields:
                    one = self._fields(one)
                # A generator may refill what it yields; for the items of a list, the engine sees who holds them.
                outputs.append(one if is_list or type(one) in UNCHANGEABLE else taken(one))
            one = None  # no reference here while the next one is made
        return outputs

    def _each(self, produced: object) -> Iterable[object]:
        if isinstance(produced, str | bytes | Mapping) or not isinstance(produced, Iterable):
            raise InvalidTransformOutputException(
                f"several outputs are annotated, one after the other, got {brief(produced)}. Yield them, return a list "
                f"of them, or write -> {type(produced).__name__} for one output."
            ).about("stage", self.name, found=type(produced))
        return produced

    def _fields(self, value: object) -> dict[str, object]:
        if not isinstance(value, self.gives.classes or ()):
            raise InvalidTransformOutputException(
                f"expected {describe_classes(self.gives.classes)}, got {brief(value)}. {self.advice_on_output}"
            ).about("stage", self.name, found=type(value))
        return fields_of(value)

    # Identity: fingerprints and pickles.

    @property
    def fingerprint_as(self) -> Callable[..., object]:
        """Its identity where code refers to it: its function and bound options."""
        return functools.partial(self.function, **self.options) if self.options else self.function

    def fingerprint_config(self) -> dict[str, object]:
        """The options in force, the version, and the form in which the function is called."""
        config: dict[str, object] = {}
        for name in self._option_names():
            if not self._is_required(name):
                config[name] = self._parameters[name].default
        config.update(self.options)
        form = ["batched" if self.batched else "record", "several" if self.gives.several else "one"]
        config["form"] = " ".join([*form, *(["fields"] if self.gives_fields else []), *self._filled])
        if (version := getattr(self, "version", None)) is not None:
            config["version"] = version
        return config

    def __reduce__(self) -> str | tuple[object, ...]:
        if importable(self.__module__, self.__qualname__) is self:
            return self.__qualname__  # by reference: unpickling imports the module
        state = {
            name: value
            for name, value in vars(self).items()
            if name in ("name", "options", "types", "gives_fields", *_OWN_OPTIONS)
        }
        named = importable(self.__module__, getattr(self.function, "__qualname__", ""))
        if isinstance(named, FunctionStage) and named.function is self.function:
            return _changed, (named, state)
        # By value, a function has only the globals that its code reads: names in its annotations may be missing there.
        return _remade, (type(self), self.function, {**state, "takes": self.takes, "gives": self.gives})


class BatchedFunctionStage(FunctionStage[P, R]):
    """A function of a list of records: `@stage(batched=True)`. It returns a list with one result for each of them.

    The engine decides how many records come at once, and results must not depend on it. If the function fails, it is
    called again with each record alone, so that only the bad one is affected.
    """

    batched = True

    def _check_parameters(self) -> None:
        super()._check_parameters()
        if self._filled:
            kind, option = ("batched stage", "batched=True") if self.batched else ("stage with a service", "service=")
            raise InvalidTypeSignatureException(
                f"a {kind} cannot have {', '.join(map(repr, self._filled))}, which belongs to a single record. Leave "
                f"{option} out, or do this in a separate stage."
            ).about("stage", self.name)

    def check_batching(self) -> None:
        """Raises `DeclarationError` for invalid limits of batches."""
        assert self._batching

    def transform(self, input_object: object) -> list[object]:
        (produced,) = self._results([input_object])
        return self._outputs(produced)

    def transform_batch(self, inputs: list[object]) -> list[list[object]]:
        """One list of outputs for each record."""
        context = current_context()
        outputs = []
        left: Left = {} if context is None else context.left
        scratch = RecordContext(seed=0, unit=self.name)
        for produced in self._results(list(inputs)):
            scratch.left = {}
            one = self._outputs(produced, scratch)
            reasons = scratch.left.get("_drops", [])
            if not one:  # the engine assigns reasons to the inputs without output, in order
                reasons = (reasons or [NO_OUTPUT])[-1:]
            elif reasons:
                left.setdefault("_partly", []).extend(reasons)
                reasons = []
            left.setdefault("_drops", []).extend(reasons)
            outputs.append(one)
        if partly := left.pop("_partly", None):
            left.setdefault("_drops", []).extend(partly)
        return outputs

    @property
    def transform_table(self) -> Callable[[Table], Table | None] | None:
        """From columns of records to those of their outputs, or to None if they must be run as rows: what the function
        has as `of_columns`, if it does. Both give the same.
        """
        of_columns: Callable[..., Table | None] | None = getattr(self.function, "of_columns", None)
        return None if of_columns is None else lambda table: of_columns(table, **self.options)

    @functools.cached_property
    def _batching(self) -> Batching[object]:
        own = {name.removeprefix("batch_"): getattr(self, name, None) for name in _BATCHING}
        return Batching(self.name, tokens=own["tokens"], tokens_of=own["tokens_of"], bytes_=own["bytes"])

    @functools.cached_property
    def _caller(self) -> Caller | None:
        if self.service is None:
            return None
        batches, classes = self._batching.batches, self.gives.classes or ()
        return Caller(self.name, self.service, classes=classes, batches=batches, call=self._results_of_batch)

    def _results(self, inputs: list[object]) -> list[object]:
        if self._caller is not None:
            return self._caller.results(inputs)
        return self._batching.call(self._results_of_batch, inputs)

    def _results_of_batch(self, inputs: Sequence[object]) -> list[object]:
        produced = self.function(inputs, **self.options)  # type: ignore[arg-type]
        if not isinstance(produced, Iterable) or isinstance(produced, str | bytes | Mapping):
            self._wrong_batch(len(inputs), brief(produced))
        results = list(produced)
        if len(results) != len(inputs):
            self._wrong_batch(len(inputs), f"{len(results)}")
        return results

    def _wrong_batch(self, expected: int, found: str) -> NoReturn:
        # A fault of the function, not of a record: running records one by one would not help.
        raise DeclarationError(
            f"a batched stage returns a list with one result for each record, expected {expected}, got {found}. Return "
            'None or drop("reason") in place of a record without output.'
        ).about("stage", self.name)


class ServiceStage(BatchedFunctionStage[P, R]):
    """A function of one record that calls a service: the calls for a batch of records wait side by side."""

    batched = False

    @functools.cached_property
    def _batching(self) -> Batching[object]:
        return Batching(self.name, records=1)

    def _results_of_batch(self, inputs: Sequence[object]) -> list[object]:
        made = [self.function(each, **self.options) for each in inputs]  # type: ignore[arg-type]
        return [list(_with_result(one)) if isinstance(one, types.GeneratorType) else one for one in made]


@overload
def stage(function: FunctionStage[..., R], /, **options: Any) -> FunctionStage[..., R]: ...
@overload
def stage(function: Callable[P, R], /) -> FunctionStage[P, R]: ...
@overload
def stage(function: Callable[..., R], /, *, batched: bool = ..., **options: object) -> FunctionStage[..., R]: ...
@overload
def stage(
    *,
    batched: bool = ...,
    name: str | None = ...,
    version: int | str | None = ...,
    on_error: OnError | None = ...,
    record_timeout_secs: float | None = ...,
    record_memory_bytes: float | None = ...,
    resources: Mapping[str, object] | None = ...,
    batch_tokens: int | None = ...,
    tokens_of: Callable[[Any], int] | None = ...,
    batch_bytes: int | None = ...,
    service: Service | None = ...,
) -> Callable[[Callable[P, R]], FunctionStage[P, R]]: ...
def stage(
    function: Callable[..., object] | None = None, /, *, batched: bool | None = None, **options: object
) -> object:
    """Makes a stage of a function, as a decorator or as a call; binds options to it.

        @stage
        def tokenize(line: str, *, min_length: int = 3) -> dict[str, object]:
            if len(line) < min_length:
                return drop("too_short")
            count("letters", len(line))
            return {"text": line, "length": len(line)}

        build("poem", TextLines("poem.txt"), [stage(tokenize, min_length=5)], to="cache")

    Args:
        function: its first parameter is the record. `rng` (a `numpy.random.Generator`) and `record_id` (a `str`) are
            given by the engine where parameters are called so; all other parameters are options.
        batched: the function takes a list of records, and returns a list with one result for each.
        name: what the stage is called in accounts and messages; the name of the function if left out.
        version: raise it when the stage means something else although its code looks the same.
        on_error: "fail", "drop" or "dead_letter" for this stage; the build's policy otherwise.
        record_timeout_secs, record_memory_bytes: limits for one record; the build's otherwise.
        resources: what one call needs of a machine, `{"gpu": 1, "gpu_type": "nvidia-l4", "ram_gb": 16, "cpu": 4}`, each
            optional. As many calls run at once as the machine has room for, at least one, whichever processes and
            builds they are of. On Beam's runners the stage is a step of its own, with these as resource hints. Its
            first call in a process has no limits for one record: models are loaded and compiled in it.
        batch_tokens, tokens_of: with `batched`, at most so many tokens at once, counted as in a padded array (records
            times the longest); `tokens_of(record)` says how many a record has.
        batch_bytes: with `batched`, at most so many bytes of records at once. A call for which memory runs out is
            repeated with half of its records.
        service: the function calls a service, as `Service(calls_per_sec=…)` says: several calls at once, again where
            they failed, and their answers kept in the cache's directory, by the stage's fingerprint and the record.
        **options: values of the function's other parameters. They are part of the stage's fingerprint; a file is passed
            as `Asset("vocab.txt")`, so that its content counts.

    Raises `DeclarationError` for an unknown option, and `InvalidTypeSignatureException` for a function that cannot be a
    stage. Types are checked when a pipeline is made of it.
    """
    if function is None:
        return functools.partial(stage, batched=batched, **options)
    made = as_stage(function, batched=batched)
    own = {name: options.pop(name) for name in _OWN_OPTIONS if name in options}
    if clashing := [name for name in own if name in made._option_names()]:
        raise DeclarationError(
            f"{clashing[0]!r} is what stage(...) takes itself, and the function has a parameter of this name. Rename "
            f"the parameter, or write {made.__name__}.bind({clashing[0]}=…) for it."
        ).about("stage", made.name)
    if options:
        made = made.bind(**options)
    own = {name: value for name, value in own.items() if value is not None}
    if not own:
        return made
    if "service" in own and not made.batched:
        made = ServiceStage(made.function, name=made.name).changed(**made.__getstate__())
    made = made.changed(**own)
    if "resources" in own:
        Resources.of(own["resources"], stage=made.name)
    if not made.batched and (of_batches := [name for name in _BATCHING if name in own]):
        raise DeclarationError(
            f"{of_batches[0]} limits the batches of a batched stage, and this one takes single records. Write "
            "@stage(batched=True), and take a list of records."
        ).about("stage", made.name)
    if isinstance(made, BatchedFunctionStage):
        made.check_batching()
    return made


def as_stage(function: object, *, batched: bool | None = None) -> FunctionStage[..., object]:
    """A function, a `functools.partial` of one, or a stage of one, as a stage.

    Raises `DeclarationError` for anything else.
    """
    if isinstance(function, functools.partial):
        if function.args:
            raise DeclarationError(
                f"a partial of {function.func!r} binds {function.args!r} by position, where the record goes. Bind "
                "options by name: functools.partial(tokenize, min_length=3)."
            )
        return as_stage(function.func, batched=batched).bind(**function.keywords)
    if isinstance(function, FunctionStage):
        if batched is not None and batched != function.batched:
            raise DeclarationError(
                f"stage {function.name!r} is declared with batched={function.batched}, got batched={batched}. Say it "
                "where the function is decorated.",
                stage=function.name,
            )
        return function
    if isinstance(function, type) or isinstance(function, Pipeline) or not callable(function):
        what = f"the class {function.__name__}" if isinstance(function, type) else brief(function)
        advice = "Write def tokenize(line: str) -> dict: … and pass tokenize."
        if isinstance(function, type) and issubclass(function, Pipeline):
            advice = f"Write {function.__name__}(), with its options: a stage of this kind is an object."
        elif isinstance(function, Pipeline):
            advice = "It is a stage already: pass it unchanged."
        advice = beam_transform_advice(function) or advice
        raise DeclarationError(f"a stage is a function, got {what}. {advice}")
    if not isinstance(function, types.FunctionType | types.MethodType | types.BuiltinFunctionType) and not isinstance(
        function, types.MethodDescriptorType
    ):
        raise DeclarationError(
            f"a stage is a function, got {brief(function)}. Write a function that calls it, so that its code can be "
            "told apart from its data."
        )
    return (BatchedFunctionStage if batched else FunctionStage)(function)


def _with_result(generator: Generator[object, None, object]) -> Iterator[object]:
    """What a generator yields, and then what it returns, if anything: `return drop("reason")`."""
    if (result := (yield from generator)) is not None:
        yield result


def _leave(dropped: Drop, context: RecordContext | None) -> None:
    context = current_context() if context is None else context
    assert context is not None  # set by whoever calls `transform`, see `Pipeline`
    context.left.setdefault("_drops", []).append(dropped.reason)


def is_example_by_fields(classes: Classes | None) -> bool:
    """Whether outputs of these classes are stored by their fields."""
    return bool(classes) and all(has_fields(cls) for cls in classes or ())


def _changed(named: FunctionStage[..., object], state: Mapping[str, object]) -> FunctionStage[..., object]:
    return named.changed(**state)


def _remade(
    cls: type[FunctionStage[..., object]], function: Callable[..., object], state: Mapping[str, object]
) -> FunctionStage[..., object]:
    return cls(function).changed(**state)
