"""The forms of a step: a function of a `tf.data.Dataset`, of one Python example, of columns of many examples.

`python_map` makes a step of a function of one example. `with_forms` gives a function of a dataset the other forms.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TypeVar

from beam_pipes.tasks.steps.examples import RawExample
from beam_pipes.tasks.steps.signatures import function_name, parameters

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
