"""The dataset classes: what they hold, how they are indexed, and what their errors say."""

from __future__ import annotations

import pickle
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from beam_pipes import map_style as datasets
from beam_pipes.errors import DatasetError, ExampleError, ExampleIndexError
from beam_pipes.map_style import (
    CacheDataset,
    ChainDataset,
    Dataset,
    DataTable,
    DictDataset,
    FilterDataset,
    SliceDataset,
    SubsetDataset,
    TransformDataset,
    TupleDataset,
)
from beam_pipes.transforms import parakeet


class Squares(Dataset):
    """Overrides `__getitem__` as the reference does; the list below raises its own IndexError."""

    def __init__(self, size):
        self.values = [n * n for n in range(size)]

    def __len__(self):
        return len(self.values)

    def __getitem__(self, i):
        return self.values[i]


class Evens(Dataset):
    """Overrides `get_example`."""

    def __len__(self):
        return 5

    def get_example(self, index):
        return 2 * index


class Recording(Dataset):
    """Remembers which examples were read."""

    def __init__(self, size):
        self.size, self.reads = size, []

    def __len__(self):
        return self.size

    def get_example(self, index):
        self.reads.append(index)
        return {"value": index}


def test_a_subclass_with_getitem_iterates_and_indexes():
    assert [0, 1, 4] == list(Squares(3))
    assert 4 == Squares(3)[2]


@pytest.mark.parametrize(
    ("index", "expected"),
    [
        pytest.param(1, 2, id="int"),
        pytest.param(np.int32(1), 2, id="numpy_int"),
        pytest.param(-1, 8, id="negative"),
        pytest.param(slice(1, 3), [2, 4], id="slice"),
        pytest.param(slice(None, None, -2), [8, 4, 0], id="stepped_slice"),
        pytest.param([3, -5], [6, 0], id="list"),
        pytest.param(np.array([True, False, False, True, False]), [0, 6], id="mask"),
    ],
)
def test_a_subclass_with_get_example_understands_every_kind_of_index(index, expected):
    assert expected == Evens()[index]


@pytest.mark.parametrize("index", [5, -6, np.int64(99)])
def test_an_index_outside_is_an_index_error_with_its_place(index):
    with pytest.raises(ExampleIndexError, match=rf"^index {index} is out of range for Evens of 5 examples$") as caught:
        Evens()[index]

    assert isinstance(caught.value, IndexError)
    assert (int(index), 5) == (caught.value.index, caught.value.size)


@pytest.mark.parametrize("index", ["a", 1.0, None])
def test_an_index_of_another_type_is_refused(index):
    with pytest.raises(
        DatasetError, match=rf"^Evens is indexed by an int, a slice or a sequence of ints, got {type(index).__name__}: "
    ):
        Evens()[index]


def test_a_mask_of_the_wrong_length_is_refused():
    with pytest.raises(DatasetError, match="^a boolean index of Evens needs 5 values, one per example; got 2$"):
        Evens()[np.array([True, False])]


def test_a_dataset_without_its_methods_says_which_to_define():
    class Empty(Dataset):
        pass

    class Sized(Dataset):
        def __len__(self):
            return 1

    with pytest.raises(DatasetError, match="^Empty should define __len__, the number of its examples$"):
        len(Empty())
    with pytest.raises(
        DatasetError,
        match=r"^Sized should define __getitem__\(self, i\) or get_example\(self, i\); it defines neither$",
    ):
        Sized()[0]


@pytest.mark.parametrize("error", [IndexError("inner"), StopIteration("inner")])
def test_an_error_that_looks_like_the_end_surfaces_while_iterating(error):
    class Broken(Dataset):
        def __len__(self):
            return 4

        def __getitem__(self, i):
            if i == 2:
                raise error
            return i

    seen = []
    with pytest.raises(
        ExampleError, match=f"^Broken: reading example 2 of Broken failed: {type(error).__name__}: inner$"
    ) as caught:
        for example in Broken():
            seen.append(example)

    assert [0, 1] == seen
    assert error is caught.value.__cause__
    assert 2 == caught.value.index
    assert not isinstance(caught.value, IndexError)


def test_an_index_error_in_get_example_is_not_mistaken_for_the_end():
    class Broken(Evens):
        def get_example(self, index):
            return [][index]

    with pytest.raises(ExampleError, match="^reading example 0 of Broken failed: IndexError: list index out of range$"):
        Broken()[0]


def test_tuple_dataset_zips_by_index_and_by_slice():
    zipped = TupleDataset("abc", np.array([1, 2, 3]))

    assert ("b", 2) == zipped[1]
    assert ("c", 3) == zipped[-1]
    assert [("a", 1), ("b", 2)] == zipped[:2]
    assert 3 == len(zipped)


def test_dict_dataset_zips_under_names():
    zipped = DictDataset(text="abc", label=[1, 2, 3])

    assert {"text": "b", "label": 2} == zipped[1]
    assert [{"text": "a", "label": 1}, {"text": "c", "label": 3}] == zipped[::2]


@pytest.mark.parametrize(
    ("build", "words"),
    [
        pytest.param(lambda: TupleDataset(), "TupleDataset needs at least one dataset, got none", id="tuple"),
        pytest.param(
            lambda: DictDataset(), "DictDataset needs at least one dataset as a keyword argument, got none", id="dict"
        ),
        pytest.param(lambda: ChainDataset(), "ChainDataset needs at least one dataset, got none", id="chain"),
        pytest.param(
            lambda: TupleDataset("ab", "abc"),
            "TupleDataset needs datasets of one length, got lengths [2, 3]",
            id="tuple_lengths",
        ),
        pytest.param(
            lambda: DictDataset(a="ab", b="abc"),
            "DictDataset needs datasets of one length, got lengths {'a': 2, 'b': 3}",
            id="dict_lengths",
        ),
        pytest.param(
            lambda: SliceDataset("abc", 1, 4),
            "SliceDataset needs 0 <= start <= finish <= 3, the dataset's length; got start=1, finish=4",
            id="slice_overruns",
        ),
        pytest.param(
            lambda: SliceDataset("abc", 0, 1, order=[0, 1, 1]),
            "SliceDataset needs an order that holds each of 0..2 once, got 3 values",
            id="slice_order",
        ),
        pytest.param(
            lambda: SubsetDataset("abc", [0, 3, -9]),
            "index 3 is out of range for str under SubsetDataset of 3 examples",
            id="subset",
        ),
        pytest.param(
            lambda: TransformDataset("abc", 3),
            "TransformDataset needs a callable transform, got int; give its class a __call__ method",
            id="transform",
        ),
        pytest.param(
            lambda: FilterDataset("abc", bool, on=[1]),
            "FilterDataset needs `on` to hold one value for each of the 3 examples, got 1",
            id="filter_on",
        ),
        pytest.param(
            lambda: CacheDataset(iter("abc")),
            "CacheDataset needs a dataset with __len__ and __getitem__, got str_ascii_iterator without "
            "__len__ and __getitem__. Pass a list or a Dataset; a stream can be read with list(...) first.",
            id="not_a_dataset",
        ),
        pytest.param(
            lambda: DataTable([]), "DataTable needs at least one record, to know its fields; got none", id="table_empty"
        ),
        pytest.param(
            lambda: DataTable([{"a": 1}], fields=["b"]),
            "DataTable has no fields ['b']; its records hold ['a']",
            id="table_field",
        ),
        pytest.param(
            lambda: DataTable([{"a": 1, "b": 2}], fields=["a"], converters={"b": str}),
            "DataTable has converters for ['b'], but keeps only the fields ['a']",
            id="table_converter",
        ),
    ],
)
def test_a_wrong_declaration_is_refused_at_construction(build, words):
    with pytest.raises(DatasetError, match=f"^{re.escape(words)}$".replace("str_ascii_iterator", r"str\w*iterator")):
        build()


def test_slice_dataset_takes_places_of_an_order():
    assert ["b", "c"] == list(SliceDataset("abcd", 1, 3))
    assert ["c", "b"] == list(SliceDataset("abcd", 1, 3, order=[3, 2, 1, 0]))
    assert ["c", "b"] == list(SliceDataset("abcd", 1, 3, [3, 2, 1, 0]))


def test_subset_dataset_keeps_the_order_of_its_indices_and_repeats():
    assert ["c", "a", "c", "d"] == list(SubsetDataset("abcd", [2, 0, 2, -1]))
    assert [] == list(SubsetDataset("abcd", []))


def test_chain_dataset_passes_over_empty_parts():
    chained = ChainDataset("ab", "", "c")

    assert ["a", "b", "c"] == list(chained)
    assert "c" == chained[-1]


def test_filter_dataset_keeps_what_passes():
    kept = FilterDataset([3, 8, 5, 1], lambda n: n > 2)

    assert [3, 8, 5] == list(kept)
    assert [0, 1, 2] == kept.indices.tolist()


def test_filter_dataset_can_judge_by_metadata_without_reading_an_example():
    clips = Recording(4)

    kept = FilterDataset(clips, lambda meta: meta["seconds"] < 3, on=[{"seconds": s} for s in (1, 5, 2, 9)])

    assert [] == clips.reads
    assert [{"value": 0}, {"value": 2}] == list(kept)


def test_cache_dataset_reads_each_example_once():
    below = Recording(3)
    cached = CacheDataset(below)

    assert list(cached) == list(cached)
    assert [0, 1, 2] == below.reads
    assert 3 == cached.num_cached
    assert cached[1] is cached[1]

    cached.clear()
    assert 0 == cached.num_cached


def test_cache_dataset_travels_without_its_examples():
    cached = CacheDataset(Squares(3))
    cached[1]

    assert 0 == pickle.loads(pickle.dumps(cached)).num_cached
    assert 1 == cached.num_cached


def test_cache_dataset_tries_a_failed_example_again():
    answers = [ZeroDivisionError(), 7]

    def flaky(_):
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    cached = CacheDataset(TransformDataset([0], flaky))

    with pytest.raises(ExampleError):
        cached[0]
    assert 7 == cached[0]


@pytest.mark.parametrize("error", [KeyError("k"), IndexError("i"), StopIteration("s")])
def test_an_error_in_a_transform_names_function_and_index(error):
    def explode(_):
        raise error

    place = r"transform .*explode \(test_datasets.py:\d+\) on example 1"
    words = rf"{place} failed: {type(error).__name__}: {re.escape(str(error))}"
    with pytest.raises(ExampleError, match=f"^{words}$") as caught:
        TransformDataset("ab", explode)[1]

    assert 1 == caught.value.index
    assert error is caught.value.__cause__


def test_the_innermost_failure_is_the_one_reported():
    inner = TransformDataset([0, 1, 0], lambda n: 1 // n)
    outer = TransformDataset(SubsetDataset(inner, [1, 2]), str)

    with pytest.raises(ExampleError, match="on example 2 failed: ZeroDivisionError") as caught:
        outer[1]

    assert 2 == caught.value.index


def test_an_error_in_a_filter_names_its_index():
    with pytest.raises(
        ExampleError, match=r"^filter .*<lambda> \(test_datasets.py:\d+\) on example 2 failed: ZeroDivisionError"
    ):
        FilterDataset([1, 1, 0], lambda n: 1 / n)


def test_a_filter_gives_one_value():
    with pytest.raises(ExampleError, match=r"on example 1 should return one true or false value, got ndarray of shape"):
        FilterDataset([np.ones(1), np.ones(2)], lambda x: x > 0)


def test_an_object_with_forward_is_a_transform():
    class Doubling:
        def forward(self, n):
            return 2 * n

    assert [2, 4] == list(TransformDataset([1, 2], Doubling()))


def test_data_table_converts_the_fields_it_keeps():
    records = [{"path": "1.5", "text": "a", "speaker": "x"}, {"path": "2.5", "text": "b", "speaker": "y"}]

    table = DataTable(records, fields=["text", "path"], converters={"path": float})

    assert [{"text": "a", "path": 1.5}, {"text": "b", "path": 2.5}] == list(table)
    assert records[0] == DataTable(records)[0]


def test_data_table_converts_once_with_a_cache():
    calls = []
    table = DataTable([{"a": 1}], converters={"a": lambda value: calls.append(value) or value}, use_cache=True)

    assert table[0] is table[0]
    assert [1] == calls


def test_data_table_travels_without_its_examples():
    table = DataTable([{"a": "1"}], converters={"a": int}, use_cache=True)
    table[0]["a"] = 5

    assert {"a": 1} == pickle.loads(pickle.dumps(table))[0]
    assert {"a": 5} == table[0]


def test_data_table_names_the_record_that_fails():
    table = DataTable([{"a": "1"}, {"a": "x"}, {}], converters={"a": int})

    with pytest.raises(ExampleError, match="^converter of 'a' int on example 1 failed: ValueError: invalid literal"):
        table[1]
    with pytest.raises(ExampleError, match=r"^record 2 of DataTable has no field 'a'; it holds \[\]$"):
        table[2]


def test_the_reference_module_of_datasets_holds_every_name():
    names = {"Dataset", "TupleDataset", "DictDataset", "SliceDataset", "SubsetDataset", "ChainDataset", "CacheDataset"}
    names |= {"FilterDataset", "TransformDataset", "DataTable", "split", "random_split"}

    for name in names:
        assert getattr(parakeet.dataset, name) is getattr(datasets, name)
        assert getattr(datasets.dataset, name) is getattr(datasets, name)


@given(st.lists(st.lists(st.integers(), max_size=5), min_size=1, max_size=6))
def test_chaining_is_concatenation(parts):
    assert sum(parts, []) == list(ChainDataset(*parts))
