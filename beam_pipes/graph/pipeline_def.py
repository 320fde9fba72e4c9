"""`pipeline_def`: a function that defines a graph, as a factory of pipelines.

With `enable_conditionals` its `if`, `and`, `or`, `not` and early returns are rewritten first. The rewriting itself is
AutoGraph's, as maintained by the library diastatic-malt: it turns each `if` into a call with the branches as functions.
This module defines what such a call does with data nodes.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import os
import sysconfig
import types
import weakref
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, TypeVar, overload

from beam_pipes.errors import ConditionError, GraphError, OperatorArgumentError
from beam_pipes.extras import require
from beam_pipes.graph.basic import Partial
from beam_pipes.graph.conditions import cond, condition, logical, merge, negation
from beam_pipes.graph.data_node import DataNode
from beam_pipes.graph.definition import check_options, option_names
from beam_pipes.graph.pipeline import Pipeline
from beam_pipes.graph.spec import GENERATED, OWN_FOLDERS, UserFrame, here
from beam_pipes.graph.trace import call, in_branch

R = TypeVar("R")
F = TypeVar("F", bound=Callable[..., object])

_NOT_CONVERTED = "__beam_pipes_do_not_convert__"
# Library code is not rewritten. Ours calls operators, which handle data nodes.
_LIBRARIES = tuple(
    path + os.sep
    for path in {
        *(sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")),
        *OWN_FOLDERS,
    }
)


def do_not_convert(function: F) -> F:
    """Excludes a function from rewriting in graphs defined with `enable_conditionals=True`.

    For helpers that inspect data nodes without using them as conditions, or that cannot be rewritten.
    """
    setattr(function, _NOT_CONVERTED, True)
    return function


@functools.cache
def _library() -> Any:
    """Malt's transpiler, with this module's meaning of `if` and similar statements."""
    require("malt", purpose="enable_conditionals=True")
    importlib.import_module("importlib.util")  # malt uses it and leaves the import to others
    from malt.core import converter
    from malt.impl import api
    from malt.operators import variables

    class Transpiler(api.PyToPy):  # type: ignore[misc]
        """Malt's, except for the functions that rewritten code calls."""

        def get_extra_locals(self) -> dict[str, types.ModuleType]:
            if not hasattr(self, "_ours"):
                original = super().get_extra_locals()["ag__"]
                module = types.ModuleType("beam_pipes_autograph")
                module.__dict__.update(original.__dict__)
                module.__dict__.update(
                    if_stmt=functools.partial(_if_statement, variables),
                    if_exp=lambda predicate, then, orelse, text: cond(predicate, then, orelse),
                    and_=lambda first, second: logical("and", first(), second),
                    or_=lambda first, second: logical("or", first(), second),
                    not_=negation,
                    while_stmt=lambda test, *rest: original.while_stmt(_decided(test), *rest),
                    for_stmt=lambda over, test, *rest: original.for_stmt(over, test and _decided(test), *rest),
                    converted_call=_converted_call,
                )
                self._ours = {"ag__": module}
            return self._ours

    options = converter.ConversionOptions(recursive=True, user_requested=True, optional_features=())
    return types.SimpleNamespace(transpiler=Transpiler(), converter=converter, options=options, api=api)


def convert(function: Callable[..., R]) -> Callable[..., R]:
    """`function`, with `if`, ternaries, `and`, `or`, `not` and early returns working on data nodes.

    Functions that it calls are converted too, unless they belong to a library or are marked with `do_not_convert`.
    """
    return functools.wraps(function)(lambda *args, **keywords: _converted_call(function, args, keywords))


# Functions that are redefined for each pipeline are released with it.
_converted: weakref.WeakKeyDictionary[types.FunctionType, Callable[..., object]] = weakref.WeakKeyDictionary()


def _rewritten(function: types.FunctionType) -> Callable[..., object]:
    """The rewritten form of a function; created once for each function object."""
    known = _converted.get(function)
    if known is not None:
        return known
    library = _library()
    try:
        context = library.converter.ProgramContext(options=library.options)
        made, module, source_map = library.transpiler.transform(function, context)
    except Exception as error:
        why = str(error).partition("\n")[0].removesuffix(" The matching definitions were:").rstrip(".")
        refused = GraphError(
            f"{function.__qualname__} ({function.__code__.co_filename}:{function.__code__.co_firstlineno}) cannot be "
            f"rewritten for conditions: {why}. Define it in a file, a lambda on a line of its own; use "
            "cond(predicate, then, orelse); or mark it with do_not_convert."
        )
        if function.__name__ != "<lambda>":
            raise refused from error
        made = _converted[function] = _unconditional(function, refused)
        return made
    lines = {
        place.lineno: UserFrame(origin.loc.filename, origin.loc.lineno, origin.function_name or function.__name__)
        for place, origin in source_map.items()
    }
    fallback = UserFrame(function.__code__.co_filename, function.__code__.co_firstlineno, function.__name__)
    GENERATED[module.__file__] = lambda line: lines.get(line, fallback)
    _converted[function] = made
    return made  # type: ignore[no-any-return]


def _unconditional(function: Callable[..., R], refused: GraphError) -> Callable[..., R]:
    """A lambda, unchanged as most need no rewriting; `refused` is raised only if it has a condition on data."""

    def as_it_is(*args: object, **keywords: object) -> R:
        try:
            return function(*args, **keywords)
        except ConditionError as error:
            if "node" in error.attributes:
                raise refused from error
            raise

    return as_it_is


def _is_users(function: types.FunctionType) -> bool:
    code = function.__code__
    if code.co_filename in GENERATED or code.co_filename.startswith("<"):
        return False
    if getattr(function, _NOT_CONVERTED, False) or hasattr(function, "autograph_info__"):
        return False
    # Generators and coroutines define no branches.
    return not code.co_filename.startswith(_LIBRARIES) and not inspect.isgeneratorfunction(function)


def _converted_call(
    function: Any, args: tuple[object, ...], keywords: Mapping[str, object] | None, *scope: object, **options: object
) -> Any:
    """A call in rewritten code: calls a user's function in its rewritten form, anything else directly."""
    keywords = keywords or {}
    if isinstance(function, functools.partial):
        return _converted_call(function.func, (*function.args, *args), {**function.keywords, **keywords})
    if function in (locals, globals, super, eval) and scope:
        return _library().api.converted_call(function, args, keywords or None, *scope, **options)
    if isinstance(function, types.MethodType) and isinstance(function.__func__, types.FunctionType):
        if _is_users(function.__func__):
            return _rewritten(function.__func__)(function.__self__, *args, **keywords)
    elif isinstance(function, types.FunctionType):
        if _is_users(function):
            return _rewritten(function)(*args, **keywords)
    elif not isinstance(function, type) and not getattr(function, _NOT_CONVERTED, False):
        method = inspect.getattr_static(type(function), "__call__", None)
        if isinstance(method, types.FunctionType) and _is_users(method):
            return _rewritten(method)(function, *args, **keywords)
    return function(*args, **keywords)


def _decided(test: Callable[[], R]) -> Callable[[], R]:
    """The condition of a loop: known at definition, the same for all samples."""

    def decided() -> R:
        value = test()
        if isinstance(value, DataNode):
            raise here(
                ConditionError(
                    "a loop goes on or ends for all samples alike, when the graph is defined: this one depends on the "
                    f"data node {value.name!r}, by `while`, or by `break` or `return` under a condition. Loop a fixed "
                    "number of times, with the condition around what is to change.",
                    node=value.name,
                )
            )
        return value

    return decided


def _if_statement(
    variables: Any,
    predicate: object,
    body: Callable[[], None],
    orelse: Callable[[], None],
    get_state: Callable[[], tuple[object, ...]],
    set_state: Callable[[tuple[object, ...]], None],
    names: tuple[str, ...],
    num_outputs: int,
) -> None:
    """`if predicate: body() else: orelse()`; variables that either sets are merged."""
    if not isinstance(predicate, DataNode):
        (body if predicate else orelse)()
        return
    chosen = condition(predicate)
    before = get_state()
    in_branch(chosen, True, body)
    after_body = get_state()
    set_state(before)
    in_branch(chosen, False, orelse)
    after_orelse = get_state()
    merged = []
    for position, name in enumerate(names):
        values = (after_body[position], after_orelse[position])
        undefined = [isinstance(v, (variables.Undefined, variables.UndefinedReturnValue)) for v in values]
        if position >= num_outputs:  # not read after the condition
            merged.append(before[position])
        elif all(undefined):
            merged.append(values[0])
        elif any(undefined):
            merged.append(_one_sided(name, chosen, values, defined=undefined[1]))
        else:
            shown = "that is returned" if name.startswith(_RETURNED) else repr(name)
            merged.append(merge(chosen, *values, names=f"the variable {shown}"))
    set_state(tuple(merged))


#: Prefixes of the names that stand for a function's return value.
_RETURNED = "retval_"


def _one_sided(name: str, predicate: DataNode, values: tuple[object, object], *, defined: bool) -> object:
    """A variable that only the branch `defined` sets."""
    value = values[0 if defined else 1]
    if not name.startswith(_RETURNED):
        raise here(
            ConditionError(
                f"the variable {name!r} is set in one branch of the condition on {predicate.name!r} and used after "
                "it. Give it a value before the condition, or in both branches.",
                variable=name,
            )
        )
    return _partial(predicate, value, defined)


def _partial(predicate: DataNode, value: object, branch: bool) -> object:
    if isinstance(value, (list, tuple)):
        return type(value)([_partial(predicate, one, branch) for one in value])
    if isinstance(value, Mapping):
        return {key: _partial(predicate, one, branch) for key, one in value.items()}
    return call(Partial, (predicate, value), {"branch": branch})


Definition = Callable[..., object]
Factory = Callable[..., Pipeline]


class FunctionPipeline(Pipeline):
    """A pipeline defined by a function."""

    #: Whether the function is called once, when the pipeline is made; else for each batch.
    runs_once: ClassVar[bool] = True

    def __init__(
        self, function: Definition, given: tuple[object, ...], arguments: Mapping[str, object], **options: Any
    ) -> None:
        super().__init__(**options)
        self._function = function
        self._given = given
        self._arguments = arguments
        if self.runs_once:
            self._define()

    def define_graph(self) -> object:
        return self._function(*self._given, **self._arguments)


@overload
def pipeline_def(fn: Definition, /) -> Factory: ...
@overload
def pipeline_def(*, enable_conditionals: bool = ..., **options: Any) -> Callable[[Definition], Factory]: ...


def pipeline_def(fn: Definition | None = None, /, *, enable_conditionals: bool = False, **options: Any) -> Any:
    """Makes a function that calls operators into a factory of pipelines.

        @pipeline_def(batch_size=32, num_threads=2)
        def my_pipeline(root):
            files, labels = fn.readers.file(file_root=root)
            return {"images": fn.decoders.image(files), "labels": labels}

        pipe = my_pipeline("photos", batch_size=64)

    Pass options of the pipeline (`PipelineOptions`) here, or in each call, which takes precedence; a keyword that the
    function takes goes to the function. With `enable_conditionals`, `if`, ternaries, `and`, `or` and `not` over data
    nodes work sample by sample.

    The function may return a data node, a tuple or list of them, or a dict, whose keys name the outputs.

    Raises `OperatorArgumentError`, naming the nearest, for keywords that neither the function nor a pipeline has.
    """
    return decorator(fn, enable_conditionals=enable_conditionals, options=options, make=FunctionPipeline)


def decorator(
    fn: Definition | None, *, enable_conditionals: bool, options: Mapping[str, object], make: Callable[..., Pipeline]
) -> Any:
    """What `pipeline_def` returns; `make` is the class of pipelines."""
    if fn is not None and not callable(fn):
        raise OperatorArgumentError(
            f"pipeline_def decorates a function, got {fn!r:.60}. Options are given by keyword: "
            "@pipeline_def(batch_size=32)."
        )
    check_options(options)

    def decorate(function: Definition) -> Factory:
        own = inspect.signature(function).parameters
        takes_any = any(p.kind is p.VAR_KEYWORD for p in own.values())

        @functools.wraps(function)
        def factory(*given: object, **keywords: object) -> Pipeline:
            known = option_names()
            for_pipeline = {name: value for name, value in keywords.items() if name in known and name not in own}
            conditionals = bool(keywords.pop("enable_conditionals", enable_conditionals))
            arguments = {name: value for name, value in keywords.items() if name not in for_pipeline}
            if not takes_any:
                check_options(arguments, of_function=tuple(own))
            try:
                inspect.signature(function).bind(*given, **arguments)
            except TypeError as error:
                raise OperatorArgumentError(f"{function.__name__}: {error}.") from None
            defined = convert(function) if conditionals else function
            return make(defined, given, arguments, **{**options, **for_pipeline})

        factory.function = function  # type: ignore[attr-defined]
        return factory

    return decorate if fn is None else decorate(fn)
