"""A source that is a function."""

from __future__ import annotations

import functools
import itertools
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol, TypeGuard

from beam_pipes.checks import brief
from beam_pipes.errors import TaskError
from beam_pipes.extras import TfDataset
from beam_pipes.format.spec import owned
from beam_pipes.tasks.sources.data_source import LibrarySource
from beam_pipes.tasks.steps.examples import NoExamples, dataset_from_examples, examples_from_dataset, normalised
from beam_pipes.tasks.steps.features import ShardInfo
from beam_pipes.tasks.steps.signatures import function_name, parameters, required_positional, validate_args

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from beam_pipes.publication.terms import TermsOptions


class DatasetFnCallable(Protocol):
    """A function that returns the examples of a split: a `tf.data.Dataset`, or any iterable of examples."""

    def __call__(self, split: str, shuffle_files: bool, seed: int | None = None) -> TfDataset | Iterable[object]: ...


#: The last iterator read from each source.
_read: weakref.WeakKeyDictionary[FunctionDataSource, object] = weakref.WeakKeyDictionary()


class FunctionDataSource(LibrarySource):
    """A function that returns the examples of a split: a `tf.data.Dataset`, or any iterable of Python examples.

    ```
    def numbers(split, shuffle_files, seed=None):
        return [{"targets": [1, 2]}, {"targets": [3]}]

    FunctionDataSource(numbers, splits=["train"], num_input_examples={"train": 2})
    ```

    It is read as one shard. A function that returns an iterator must return a new one every time. A split without
    Python examples becomes an empty dataset with the element types of the other splits.

    Args:
        dataset_fn: takes `split`, `shuffle_files` and, if it has it, `seed`.
        splits: names of the splits.
        num_input_examples: number of examples in each split, where known.
        caching_permitted: a task over this source may be cached.

    Raises:
        TaskError: the function has other arguments.
    """

    def __init__(
        self,
        dataset_fn: Callable[..., TfDataset | Iterable[object]],
        splits: Iterable[str],
        num_input_examples: Mapping[str, int] | None = None,
        caching_permitted: bool = True,
        **declared: Unpack[TermsOptions],
    ) -> None:
        validate_args(dataset_fn, ["split", "shuffle_files"] + ["seed"] * ("seed" in required_positional(dataset_fn)))
        self._dataset_fn = dataset_fn
        super().__init__(splits, num_input_examples, caching_permitted, **declared)

    @functools.cached_property
    def reads_without_tensorflow(self) -> bool:  # type: ignore[override]
        """Whether the function returns Python examples: it is called once to find out."""
        return not _is_dataset(self._call(self.splits[0], False, None)) if self.splits else True

    @property
    def supports_arbitrary_sharding(self) -> bool:
        return False

    def __repr__(self) -> str:
        return (
            f"FunctionDataSource(dataset_fn={function_name(self._dataset_fn)}, splits={self.splits}, "
            f"num_input_examples={self._num_input_examples}, caching_permitted={self.caching_permitted})"
        )

    def _dataset_of(self, split: str, shuffle: bool, seed: int | None, shard_info: ShardInfo | None) -> TfDataset:
        self._check_split(split)
        if shard_info is not None and shard_info.num_shards > 1:
            raise TaskError(
                "`FunctionDataSource` does not support low-level sharding. Use tf.data.Dataset.shard instead."
            )
        made = self._call(split, shuffle, seed)
        if _is_dataset(made):
            return made
        if isinstance(made, Iterator) and self._call(split, shuffle, seed) is made:
            raise self._read_twice()  # here, where TensorFlow does not wrap it
        first = [made]

        def examples() -> Iterator[object]:
            # The first pass reads the result of the initial call; later ones call the function again.
            made = first.pop() if first else self._call(split, shuffle, seed)
            yield from (owned(normalised(example)) for example in self._unread(made))

        name = f"source function '{function_name(self._dataset_fn)}'"
        try:
            return dataset_from_examples(examples, features={}, name=name)
        except NoExamples:
            others = (example for other in self.splits for example in self._call(other, False, None))
            known = list(itertools.islice(others, 1))
            if not known:
                raise
            return dataset_from_examples(lambda: known, features={}, name=name).take(0)

    def _call(self, split: str, shuffle: bool, seed: int | None) -> TfDataset | Iterable[object]:
        options = {"seed": seed} if "seed" in parameters(self._dataset_fn) else {}
        made = self._dataset_fn(split=split, shuffle_files=shuffle, **options)
        if _is_dataset(made) or (isinstance(made, Iterable) and not isinstance(made, str | bytes | Mapping)):
            return made
        raise TaskError(
            f"source function '{function_name(self._dataset_fn)}' should return a tf.data.Dataset or an iterable of "
            f"examples, got {brief(made)} for split {split!r}. Return a list of dicts, or yield them"
        )

    def _unread(self, made: Iterable[object]) -> Iterable[object]:
        """`made`, unless it is an iterator that an earlier pass has read: examples would be missing."""
        if isinstance(made, Iterator):
            if _read.get(self) is made:
                raise self._read_twice()
            _read[self] = made
        return made

    def _read_twice(self) -> TaskError:
        return TaskError(
            f"source function '{function_name(self._dataset_fn)}' gave the same iterator twice, which can be read only "
            "once. Make it a generator function, or return a new iterator or a list every time"
        )

    def list_shards(self, split: str) -> Sequence[str]:
        return [split]

    def read_shard(self, split: str, shard: str) -> Iterator[object]:
        self._check_split(split)
        self._shard_index(split, shard)
        made = self._call(split, False, None)
        return (
            examples_from_dataset(made)
            if _is_dataset(made)
            else (owned(normalised(example)) for example in self._unread(made))
        )


def _is_dataset(value: object) -> TypeGuard[TfDataset]:
    return hasattr(value, "element_spec") and hasattr(value, "as_numpy_iterator")
