"""User functions: their names, parameters, and forms as steps.

A step is a function of a `tf.data.Dataset`, of one Python example (`python_map`), of columns of many; `with_forms`
gives a function of a dataset the other forms. Metric functions are classified by their parameters: predictions, scores,
or predictions with auxiliary values.

The first functions flatten nested dicts, and restore them.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias, TypeVar

from beam_pipes.errors import TaskError
from beam_pipes.format.feature_values import nested
from beam_pipes.tasks.steps.examples import RawExample

R = TypeVar("R")

DELIMITER = "/"

#: A nested dict of values, or something that flattens to one.
NestedDict: TypeAlias = dict[str, Any]


def flatten_dict(nested_dct: Mapping[str, object], delimiter: str = DELIMITER) -> NestedDict:
    """`{"a": {"b": 1}, "c": 2}` → `{"a/b": 1, "c": 2}`."""
    flat: dict[str, object] = {}
    for name, value in nested_dct.items():
        if isinstance(value, Mapping):
            inner = flatten_dict(value, delimiter)
            flat.update({f"{name}{delimiter}{rest}": leaf for rest, leaf in inner.items()})
        else:
            flat[name] = value
    return flat


def unflatten_dict(dct: Mapping[str, object], delimiter: str = DELIMITER) -> NestedDict:
    """`{"a/b": 1, "c": 2}` → `{"a": {"b": 1}, "c": 2}`."""
    return nested(dct, delimiter)


INJECTED = ("output_features", "sequence_length")


def function_name(function: object) -> str:
    """Name of a function, a `functools.partial`, or an object that can be called."""
    while isinstance(function, functools.partial):
        function = function.func
    return getattr(function, "__name__", None) or type(function).__name__


def fully_qualified_class_name(instance: object) -> str:
    """`package.module.Class` of an object."""
    return f"{type(instance).__module__}.{type(instance).__qualname__}"


def parameters(function: object) -> dict[str, inspect.Parameter]:
    """Parameters by name; those that a `functools.partial` binds by keyword have a default."""
    if not callable(function):
        return {}
    try:
        return dict(inspect.signature(function).parameters)
    except (TypeError, ValueError):  # some builtins have no signature
        return {}


def bound_names(function: object) -> frozenset[str]:
    """Names of the keyword arguments that a `functools.partial` has bound, also inside of others and of decorators."""
    names: set[str] = set()
    while True:
        if isinstance(function, functools.partial):
            names.update(function.keywords)
            function = function.func
        elif hasattr(function, "__wrapped__"):
            function = function.__wrapped__
        else:
            return frozenset(names)


def injectable(transform: object) -> frozenset[str]:
    """Names that `add_kwargs_to_transform` gives a value: parameters that are not bound, and fields of a dataclass."""
    return _fields(transform) | (parameters(transform).keys() - bound_names(transform))


def add_kwargs_to_transform(transform: Callable[..., R], **kwargs: object) -> Callable[..., R]:
    """Binds to a function or a callable dataclass those arguments that it takes: `f(ds, output_features)` → `f(ds)`.

    Fields of a dataclass are always replaced. Arguments bound by a `functools.partial` stay. A function with `**kwargs`
    gets only the parameters that it names.
    """
    fields = _fields(transform)
    replaced = {name: value for name, value in kwargs.items() if name in fields}
    if replaced:
        replace: Callable[..., Callable[..., R]] = dataclasses.replace
        transform = replace(transform, **replaced)
    accepted = injectable(transform) - fields
    bound = {name: value for name, value in kwargs.items() if name in accepted}
    return functools.partial(transform, **bound) if bound else transform


def _fields(transform: object) -> frozenset[str]:
    """Fields of an object of a callable dataclass; none of anything else, such as a typed stage."""
    if not dataclasses.is_dataclass(transform) or isinstance(transform, type) or not callable(transform):
        return frozenset()
    return frozenset(field.name for field in dataclasses.fields(transform) if field.init)


def required_positional(function: object) -> list[str]:
    """Names of the parameters that a caller has to give by position."""
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return [n for n, p in parameters(function).items() if p.kind in kinds and p.default is p.empty]


def validate_args(function: Callable[..., object], expected: Sequence[str]) -> None:
    """Checks that a function begins with these parameters and requires no others.

    Raises:
        TaskError: it does not.
    """
    expected = list(expected)
    actual = list(parameters(function))
    if actual[: len(expected)] != expected:
        raise TaskError(
            f"'{function_name(function)}' must have initial args {tuple(expected)}, got: {tuple(actual)}",
            expected=expected,
        )
    needed = required_positional(function)
    if not set(needed) <= set(expected):
        raise TaskError(
            f"'{function_name(function)}' may only have positional args {tuple(expected)}, got: {tuple(needed)}",
            expected=expected,
        )


#: Values of metrics by name: numbers, or other values that loggers support.
MetricValues: TypeAlias = dict[str, Any]
#: A metric: a function of targets and predictions that gives values by name.
MetricFn = Callable[..., Mapping[str, object]]
#: A function from decoded text, a target or a prediction, to the value that metrics compare.
Postprocessor = Callable[..., object]

#: kind → the positional argument names of metric functions of this kind.
SIGNATURES = {
    "predict": ("targets", "predictions"),
    "score": ("targets", "scores"),
    "predict_with_aux": ("targets", "predictions", "aux_values"),
}


def metric_kind(metric_fn: MetricFn) -> str:
    """`predict`, `score` or `predict_with_aux`, by the names of the function's arguments.

    Raises:
        TaskError: they are others.
    """
    arguments = tuple(required_positional(metric_fn))
    for kind, signature in SIGNATURES.items():
        if arguments == signature:
            return kind
    raise TaskError(
        "Metric functions must have positional arguments matching either ('targets', 'scores'), "
        f"('targets', 'predictions') or ('targets', 'predictions', 'aux_values'). Got: {arguments}",
        arguments=arguments,
    )


def metrics_of_kind(metric_fns: Sequence[MetricFn], kind: str) -> list[MetricFn]:
    return [metric_fn for metric_fn in metric_fns if metric_kind(metric_fn) == kind]


F = TypeVar("F", bound=Callable[..., object])


class PythonMap:
    """A Python function of one example as a preprocessor. Made by `python_map`."""

    def __init__(self, fn: Callable[..., object]) -> None:
        self.fn = fn
        self.takes_generator = "rng" in parameters(fn)
        functools.update_wrapper(self, fn)

    def __call__(self, example: object, *args: object, **kwargs: object) -> RawExample:
        """The function itself, on one example."""
        return self.fn(example, *args, **kwargs)

    def __repr__(self) -> str:
        return f"python_map({function_name(self.fn)})"


def python_map(fn: Callable[..., object]) -> PythonMap:
    """Makes a Python function of one example a preprocessor: no TensorFlow, any library, native speed offline.

    ```
    @python_map
    def split_sentences(example):
        return [{"targets": sentence} for sentence in example["text"].split(". ")]
    ```

    The function takes an example (NumPy arrays, `bytes` for strings, numbers) and returns an example, a list of
    examples, or None to drop it. It may have the arguments `output_features` and `sequence_length`, which are injected,
    and `rng`, a NumPy generator keyed by seed and example. Lists and Python numbers take the dtype of the output
    feature of their name.
    """
    return PythonMap(fn)


def with_forms(
    python: Callable[..., object] | None = None, columns: Callable[..., object] | None = None
) -> Callable[[F], F]:
    """Gives a function of a dataset equivalent forms: of one Python example, and of columns of many."""

    def decorate(preprocessor: F) -> F:
        forms = {"python_form": python, "column_form": columns}
        preprocessor.__dict__.update((name, form) for name, form in forms.items() if form is not None)
        return preprocessor

    return decorate


def of_any_example(preprocessor: F) -> F:
    """The function of one example that `map_over_dataset` wraps serves Python examples as well as tensors."""
    function: Callable[..., object] = vars(preprocessor)["__wrapped__"]
    return with_forms(python=function)(preprocessor)
