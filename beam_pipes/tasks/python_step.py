"""Preprocessors in plain Python, one example at a time."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from beam_pipes.tasks.signatures import function_name, parameters


class PythonMap:
    """A Python function of one example as a preprocessor. Made by `python_map`."""

    def __init__(self, fn: Callable[..., Any]) -> None:
        self.fn = fn
        self.takes_generator = "rng" in parameters(fn)
        functools.update_wrapper(self, fn)

    def __call__(self, example: Any, *args: Any, **kwargs: Any) -> Any:
        """The function itself, on one example."""
        return self.fn(example, *args, **kwargs)

    def __repr__(self) -> str:
        return f"python_map({function_name(self.fn)})"


def python_map(fn: Callable[..., Any]) -> PythonMap:
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


def with_python_form(form: Callable[..., Any]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Gives a tf.data preprocessor a second form, a Python function of one example that means the same."""

    def decorate(preprocessor: Callable[..., Any]) -> Callable[..., Any]:
        preprocessor.__dict__["python_form"] = form
        return preprocessor

    return decorate
