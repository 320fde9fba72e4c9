"""Graphs as JSON: read back they are the same; nothing is pickled; what has no name is refused."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from graph_outputs import batches, numbered

from beam_pipes.errors import GraphError, OperatorArgumentError
from beam_pipes.graph import Pipeline, pipeline_def, types
from beam_pipes.transforms import fn


def halve(one: Any) -> Any:
    return one // 2


def define(root: str) -> Pipeline:
    @pipeline_def(batch_size=3, seed=4, enable_conditionals=True)
    def graph() -> Any:
        data, labels = fn.readers.file(file_root=root, random_shuffle=True, name="Reader")
        four = fn.python_function(data[:4], function=halve)
        flip = fn.random.coin_flip(dtype=types.BOOL)
        if flip:
            if labels[0] == 1:
                four = four + np.array([1, 2, 3, 4], np.uint8)
            else:
                four = four * 2
        return {"four": four, "flip": fn.flip(four[None], horizontal=flip), "labels": labels}

    return graph()


def test_a_graph_read_back_gives_the_same(files_root: str, tmp_path: Any) -> None:
    pipe = define(files_root)
    text = pipe.serialize(tmp_path / "graph.json")
    again = Pipeline.deserialize(filename=tmp_path / "graph.json")
    larger = Pipeline.deserialize(text, batch_size=10)

    assert json.loads(text)["format_version"] == 1
    assert batches(again, 5) == batches(pipe, 5)
    assert again.serialize() == text
    assert larger.run().batch_size == 10 and larger.output_names == ("four", "flip", "labels")
    assert again.state.source["graph"] == pipe.state.source["graph"]


def test_what_has_no_name_is_refused_with_its_line() -> None:
    pipe = Pipeline(batch_size=1)
    with pipe:
        pipe.set_outputs(fn.external_source(numbered(3), batch=False))
    with pytest.raises(
        GraphError, match=r"external_source.source cannot be serialized: .* has no name .*test_serialized_graph"
    ):
        pipe.serialize()
    pipe = Pipeline(batch_size=1)
    with pipe:
        pipe.set_outputs(fn.external_source(iter([np.zeros(1)])))
    with pytest.raises(GraphError, match="is neither plain data nor a function with a name"):
        pipe.serialize()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "a serialized graph is one JSON object"),
        ("{}", "expected a serialized graph of version 1, got version None"),
        ('{"format_version": 1, "options": {}}', "the serialized graph is damaged: KeyError: 'operators'"),
    ],
)
def test_what_is_not_a_graph_is_refused(text: str, message: str) -> None:
    with pytest.raises(GraphError, match=message):
        Pipeline.deserialize(text)


def test_only_operators_are_made_of_what_a_graph_names(files_root: str) -> None:
    made = json.loads(define(files_root).serialize())
    made["operators"][0]["class"] = "subprocess:Popen"
    with pytest.raises(GraphError, match="refers to 'subprocess:Popen' as an operator, which it is not"):
        Pipeline.deserialize(json.dumps(made))
    made["operators"][0]["class"] = "no.such.module:Thing"
    with pytest.raises(GraphError, match="refers to 'no.such.module:Thing', which cannot be imported"):
        Pipeline.deserialize(json.dumps(made))
    with pytest.raises(OperatorArgumentError, match="deserialize takes the text, or filename="):
        Pipeline.deserialize()
