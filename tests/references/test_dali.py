"""DALI's names and programs: what is there, what is different, what is absent, and what programs of users give.

`dali_names.json` and `dali_answers.json` are what `dali_reference.py` has found in DALI 2.4.0 itself.
"""

from __future__ import annotations

import inspect
import json
import math
import sys
from pathlib import Path
from typing import Any

import pytest

from beam_pipes import graph, on_device
from beam_pipes.graph import functions
from beam_pipes.graph.tensors import ABSENT
from beam_pipes.transforms import fn

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

import dali_reference  # noqa: E402  # as it stands where DALI is
from dali_environment import moved  # noqa: E402

ANSWERS: dict[str, Any] = json.loads((HERE / "dali_answers.json").read_text())
PROGRAMS = dali_reference.programs(moved)
# Program → what ours is instead, as the page says.
OTHER_ANSWERS: dict[str, Any] = {
    "comparisons_of_int64_and_float32": [[False]],  # of the values, not of float32
    "none_in_an_index": [[[1, 2, 3]]],  # a new axis, not all of one
    "whole_quotients_of_floats": "refused",  # not divided
    "the_end_of_an_epoch": [[0, 1, 2, 10], [11, 12]],  # never two epochs in a batch
    "the_files_of_a_shard": [[1, 10, 12]],  # every second one, not the second half
    "samples_that_fill_no_batch": [[[0], [1]], [[2]], "end"] * 2,  # a smaller batch, not dropped
    "a_list_that_was_read": [[1, 2], "end"] * 2,  # again, not at its end for good
    "where_a_file_was_read": "cat/0.jpg@0",  # the name of the record
}


def alike(found: Any, expected: Any) -> bool:
    """Whether both are the same but for the last digits of float32, which is computed in other orders."""
    if isinstance(found, list) and isinstance(expected, list):
        return len(found) == len(expected) and all(map(alike, found, expected))
    if isinstance(found, float) and isinstance(expected, float):
        return math.isclose(found, expected, rel_tol=1e-5, abs_tol=1e-6)
    return bool(found == expected)


def test_every_program_has_a_recorded_answer() -> None:
    assert sorted(PROGRAMS) == sorted(ANSWERS) and OTHER_ANSWERS.keys() < PROGRAMS.keys()
    assert f"what {len(PROGRAMS)} programs give" in PAGE.read_text()


@pytest.mark.parametrize("name", sorted(PROGRAMS))
def test_programs_give_what_they_give_with_dali(name: str) -> None:
    found = dali_reference.answer(PROGRAMS[name])

    assert alike(found, OTHER_ANSWERS.get(name, ANSWERS[name])), found
    assert name not in OTHER_ANSWERS or not alike(found, ANSWERS[name])


NAMES: dict[str, Any] = json.loads((HERE / "dali_names.json").read_text())
PAGE = HERE.parent.parent / "docs" / "migrate-from-dali.md"

# Name → how it is different, and why.
DIFFERENT = {
    "DataNode.cpu": "gives an output: the host comes before the device",
    "DataNode.property": "`source_info` is the record's name, `cat/3.jpg@0`, also for data derived from it",
    "DataNode.source_info": "the record's name, `cat/3.jpg@0`",
    "Pipeline.__init__": "keywords only after `seed`; options of DALI's executor have no effect",
    "Pipeline.executor_statistics": "records, bytes and seconds of every operator",
    "Pipeline.feed_input": "a batch on the host; `layout` is declared by `external_source`",
    "Pipeline.outputs": "without a CUDA stream: batches are on the host, and iterators move them",
    "Pipeline.epoch_size": "records of the data set, without those that pad shards",
    "Pipeline.reader_meta": "`epoch_size_padded` is computed for batches of one record; also `shard_size`",
    "Pipeline.reset": "also takes the epoch to start, from any position",
    "Pipeline.save_graph_to_dot_file": "the drawing of `explain`, always with the data between operators",
    "Pipeline.serialize": "JSON with callables by name, nothing pickled; the graph of the pipeline",
    "Pipeline.share_outputs": "as `outputs`: a batch belongs to its receiver",
    "TensorList.as_tensor": "has `shape()`, `dtype`, `layout()`, and is a NumPy array by `np.array`",
    "TensorList.dtype": "the NumPy dtype, which DALI's names compare with through `to_dali_type`",
    "iterators.jax.DALIGenericIterator": "`JaxGenericIterator`; `PARTIAL` too",
    "iterators.jax.DALIGenericPeekableIterator": (
        "`JaxGenericPeekableIterator`; `element_spec` holds `jax.ShapeDtypeStruct`, not CLU's"
    ),
    "iterators.jax.data_iterator": "`data_iterator` of `beam_pipes.on_device`, by keywords",
    "iterators.jax.peekable_data_iterator": "`peekable_data_iterator` of `beam_pipes.on_device`, by keywords",
    "iterators.pytorch.DALIClassificationIterator": "`TorchClassificationIterator`; `FILL` repeats the last record",
    "iterators.pytorch.DALIGenericIterator": "`TorchGenericIterator`; `FILL` repeats the last record",
    "iterators.tf.DALIDataset": "a function; sizes of batches and queues are those of the pipeline",
    "types.to_dali_type": "the argument is called `dtype`, and may be its name",
    "types.to_numpy_type": "the argument is called `dtype`, and may be one of NumPy's",
    "types.Constant": "a node for single numbers too; an `int` beyond int32 is int64",
}


def every_name() -> dict[str, list[str] | None]:
    """Name → its arguments."""
    found = {
        f"{where}.{name}": arguments
        for where in NAMES
        if where != "version"
        for name, arguments in NAMES[where].items()
    }
    base = found.pop("iterators.base_iterator._DaliBaseIterator")
    assert set(base) <= set(found["iterators.pytorch.DALIGenericIterator"])
    found["iterators.tf.DALIDataset"] = found.pop("iterators.tf._DALIDatasetV2")
    return found


def table() -> list[str]:
    """The table that the page of the migration ends with."""
    same: dict[str, list[str]] = {}
    for name in sorted(every_name()):
        if name not in DIFFERENT and name not in ABSENT:
            where, _, own = name.partition(".")
            same.setdefault(where, []).append(f"`{own}`")
    absent: dict[str, list[str]] = {}
    for name, why in sorted(ABSENT.items()):
        absent.setdefault(why, []).append(f"`{name}`")
    return [
        "| name | here | how, and why |",
        "| --- | --- | --- |",
        *(f"| `{where}`: {', '.join(names)} | present | the same arguments |" for where, names in sorted(same.items())),
        *(f"| `{name}` | different | {DIFFERENT[name]} |" for name in sorted(DIFFERENT)),
        *(f"| {', '.join(names)} | absent | {why} |" for why, names in absent.items()),
    ]


def test_the_page_ends_with_the_table_of_every_name() -> None:
    assert PAGE.read_text().rstrip().splitlines()[-len(table()) :] == table()


def test_the_table_names_nothing_else() -> None:
    assert not (DIFFERENT.keys() | ABSENT.keys()) - every_name().keys() and not DIFFERENT.keys() & ABSENT.keys()


def ours(name: str) -> Any:
    """What has the name here; None where nothing has."""
    where, _, own = name.partition(".")
    if where == "iterators":
        kind, _, own = own.partition(".")
        prefix = {"pytorch": "Torch", "jax": "Jax", "tf": "DALI"}[kind]
        return getattr(on_device, own if own.islower() else own.replace("DALI", prefix), None)
    places = {"types": graph.types, "math": fn.math, "tfrecord": functions}
    return getattr(places.get(where, getattr(graph, where, None)), own, None)


@pytest.mark.parametrize("name", sorted(every_name()))
def test_names_and_arguments_are_those_of_dali(name: str) -> None:
    value = ours(name)
    if name in ABSENT:
        assert value is None
        return
    assert value is not None
    wanted = every_name()[name]
    if wanted is None or name in DIFFERENT:
        return
    parameters = inspect.signature(value).parameters
    if name.startswith("math."):  # inputs of operators are given by place
        assert sum(one.default is one.empty for one in parameters.values()) == len(wanted)
        return
    takes_any = any(one.kind in (one.VAR_KEYWORD, one.VAR_POSITIONAL) for one in parameters.values())
    assert takes_any or set(wanted) - {"kwargs", "args"} <= set(parameters)


@pytest.mark.parametrize("option", NAMES["Pipeline"]["__init__"])
def test_every_option_of_a_pipeline_is_taken(option: str) -> None:
    given: dict[str, Any] = {"batch_size": 2, option: 2 if option == "batch_size" else None}

    assert graph.Pipeline(**given).batch_size == 2


def test_a_name_that_is_absent_is_answered_from_the_table() -> None:
    pipe = graph.Pipeline(batch_size=1)
    with pytest.raises(AttributeError, match="DALI's is absent here: says how DALI's executor runs: what is an option"):
        pipe.exec_async  # noqa: B018
    with pytest.raises(AttributeError, match="TensorList has no attribute 'data_ptr'. DALI's is absent here: DALI's m"):
        graph.TensorList([1]).data_ptr  # noqa: B018
    with pytest.raises(AttributeError, match="DALI's is absent here: layouts are strings"):
        graph.types.SAME  # noqa: B018
    with pytest.raises(AttributeError, match="Pipeline has no attribute 'run_it'.$"):
        pipe.run_it  # noqa: B018
