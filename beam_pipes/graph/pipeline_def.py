"""`pipeline_def`: a function that defines a graph, as a factory of pipelines."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any, overload

from beam_pipes.errors import OperatorArgumentError
from beam_pipes.graph.definition import option_names
from beam_pipes.graph.operator import nearest
from beam_pipes.graph.pipeline import Pipeline

Definition = Callable[..., object]
Factory = Callable[..., Pipeline]


class FunctionPipeline(Pipeline):
    """A pipeline defined by a function."""

    def __init__(
        self, function: Definition, given: tuple[object, ...], arguments: Mapping[str, object], **options: Any
    ) -> None:
        super().__init__(**options)
        self._function = function
        self._given = given
        self._arguments = arguments
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
    function has belongs to the function. With `enable_conditionals`, `if`, ternaries,
    `and`, `or` and `not` over data nodes work sample by sample.

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
    _check_options(options, ())

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
                _check_options(arguments, tuple(own))
            try:
                inspect.signature(function).bind(*given, **arguments)
            except TypeError as error:
                raise OperatorArgumentError(f"{function.__name__}: {error}.") from None
            defined = function
            if conditionals:
                from beam_pipes.graph.autograph import convert

                defined = convert(function)
            return make(defined, given, arguments, **{**options, **for_pipeline})

        factory.function = function  # type: ignore[attr-defined]
        return factory

    return decorate if fn is None else decorate(fn)


def _check_options(given: Mapping[str, object], of_function: tuple[str, ...]) -> None:
    known = (*of_function, *option_names())
    for name in given:
        if name not in known:
            takes = f"the function takes {', '.join(of_function)}; " if of_function else ""
            raise OperatorArgumentError(
                f"there is no argument {name!r}.{nearest(name, known)} {takes}a pipeline takes "
                f"{', '.join(option_names()[:9])}.".replace("  ", " "),
                argument=name,
            )
