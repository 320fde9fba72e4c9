"""The words of every error of a DAG's declaration, and the order in which they are checked."""

from __future__ import annotations

import re
from typing import Any

import pytest

from beam_pipes.typed import (
    BadInputOrOutputException,
    BadTopologyException,
    DAGPipeline,
    DuplicateNameException,
    Input,
    InvalidDAGException,
    InvalidDictionaryOutput,
    InvalidTypeSignatureException,
    Key,
    NotConnectedException,
    Output,
    Pipeline,
    TypeMismatchException,
    UnknownKeyException,
)


class Echo(Pipeline):
    def __init__(self, name: Any = "Echo", input_type: Any = str, output_type: Any = str) -> None:
        super().__init__(input_type, output_type, name)

    def transform(self, input_object: Any) -> list[Any]:
        return [input_object]


a, b, c = Echo("a"), Echo("b"), Echo("c")
split = Echo("split", str, {"x": str, "y": str})
join = Echo("join", {"x": str, "y": str}, str)


def says(text: str) -> str:
    return f"^{re.escape(text)}$"


def twin(module: str) -> type:
    return type("Twin", (), {"__module__": module})


CASES = [
    pytest.param(
        [a, b],
        InvalidDAGException,
        f"a DAG is a dict of destination: dependency, got list: {[a, b]!r}. "
        "Write {stage: Input(str), Output('name'): stage}.",
        id="not a dict",
    ),
    pytest.param(
        {a: Input(str), Output(): a},
        InvalidDictionaryOutput,
        "Output() without a name needs a dict, or a pipeline whose output is a dict, got a. Name it: Output('name').",
        id="unnamed output of a single value",
    ),
    pytest.param(
        {Output(): Input({"x": str})},
        InvalidDictionaryOutput,
        "Output() without a name needs a dict, or a pipeline whose output is a dict, got Input({'x': str}). "
        "Name it: Output('name').",
        id="unnamed output of an input",
    ),
    pytest.param(
        {split: Input(str), Output("o"): split},
        InvalidDictionaryOutput,
        "Output('o') has a name and needs a single value, got the dict split. Use Output() without a name, or choose "
        "one key.",
        id="named output of a pipeline with a dict output",
    ),
    pytest.param(
        {a: Input(str), Output("o"): {"x": a}},
        InvalidDictionaryOutput,
        "Output('o') has a name and needs a single value, got the dict {'x': a}. Use Output() without a name, or "
        "choose one key.",
        id="named output of a dict",
    ),
    pytest.param(
        {Output("o"): Input({"x": str})},
        InvalidDictionaryOutput,
        "Output('o') has a name and needs a single value, got the dict Input({'x': str}). Use Output() without a "
        "name, or choose one key.",
        id="named output of a dict input",
    ),
    pytest.param(
        {split: Input(str), Output(): {"o": split}},
        InvalidDictionaryOutput,
        "Output('o') has a name and needs a single value, got the dict split. Use Output() without a name, or choose "
        "one key.",
        id="dict output two levels deep",
    ),
    pytest.param(
        {a: Input(str), Output(): {"o": {"p": a}}},
        InvalidDictionaryOutput,
        "Output('o') has a name and needs a single value, got the dict {'p': a}. Use Output() without a name, or "
        "choose one key.",
        id="dict of dicts",
    ),
    pytest.param(
        {Input(str): a, Output("o"): a},
        InvalidDAGException,
        "Input(str): a: an Input cannot be a destination. Put it on the right: pipeline: Input(T).",
        id="input as destination",
    ),
    pytest.param(
        {"a": Input(str)},
        InvalidDAGException,
        "'a': Input(str): a destination is a Pipeline or an Output, got str. Turn the pair round if it is the "
        "dependency.",
        id="destination of a wrong kind",
    ),
    pytest.param(
        {a: Output("o")},
        InvalidDAGException,
        "a: Output('o'): an Output cannot be a dependency. Depend on what feeds it.",
        id="output as dependency",
    ),
    pytest.param(
        {a: Input(str), b: Echo, Output("o"): b},
        InvalidDAGException,
        f"b: {Echo!r}: a dependency is a Pipeline, a Key (pipeline['name']), an Input, or a dict of name to one of "
        f"these, got ABCMeta: {Echo!r}.",
        id="a class where an instance is meant",
    ),
    pytest.param(
        {join: {"x": {"y": a}}},
        InvalidDAGException,
        "join: {'x': {'y': a}}: a dependency is a Pipeline, a Key (pipeline['name']), an Input, or a dict of name to "
        f"one of these, got dict: {{'y': {a!r}}}.",
        id="dict dependency two levels deep",
    ),
    pytest.param(
        {join: {1: a}},
        InvalidDAGException,
        "join: {1: a}: the names of a dict dependency are strings, got 1. Use the keys of input_type.",
        id="names that are not strings",
    ),
    pytest.param(
        {Echo("n", int, int): Input(str)},
        TypeMismatchException,
        "n: Input(str): 'n' takes int, but Input(str) gives str. Connect equal type signatures, or put a pipeline "
        "between that converts.",
        id="class against class",
    ),
    pytest.param(
        {split: Input(str), join: {"x": split["x"]}},
        TypeMismatchException,
        "join: {'x': split['x']}: 'join' takes {'x': str, 'y': str}, but {'x': split['x']} gives {'x': str}. Connect "
        "equal type signatures, or put a pipeline between that converts.",
        id="a key is missing",
    ),
    pytest.param(
        {split: Input(str), join: {"x": split, "y": a}},
        TypeMismatchException,
        "join: {'x': split, 'y': a}: 'join' takes {'x': str, 'y': str}, but {'x': split, 'y': a} gives "
        "{'x': {'x': str, 'y': str}, 'y': str}. Connect equal type signatures, or put a pipeline between that "
        "converts.",
        id="a dict where a class is expected",
    ),
    pytest.param(
        {Echo("n", twin("left")): Input(twin("right"))},
        TypeMismatchException,
        "n: Input(Twin): 'n' takes <class 'left.Twin'>, but Input(Twin) gives <class 'right.Twin'>. Connect equal type "
        "signatures, or put a pipeline between that converts.",
        id="two classes of one name",
    ),
    pytest.param(
        {a: Input(str), Echo("a"): a, Output("o"): a},
        DuplicateNameException,
        "two pipelines are called 'a' (Echo and Echo): names are the name spaces of statistics. Give one another name.",
        id="two pipelines of one name",
    ),
    pytest.param(
        {a: Input(str), Output("o"): a, Output(): {"o": a}},
        DuplicateNameException,
        "two outputs are called 'o'. Rename one of them.",
        id="two outputs of one name",
    ),
    pytest.param(
        {Echo(""): Input(str)},
        InvalidDAGException,
        ": Input(str): a pipeline's name should be a str that is not empty, and Echo has ''. Pass name=... to "
        "super().__init__, or set it as a class attribute.",
        id="a pipeline without a name",
    ),
    pytest.param(
        {b: a, Output("o"): b},
        BadInputOrOutputException,
        "the DAG has no Input. Connect at least one pipeline to Input(type).",
        id="no input",
    ),
    pytest.param(
        {a: Input(str), Echo("n", int, int): Input(int), Output("o"): a},
        BadInputOrOutputException,
        "the DAG has inputs of different types: Input(str) and Input(int). A DAG takes a single input: use "
        "Input({'name': type, ...}) for several values.",
        id="inputs of two types",
    ),
    pytest.param(
        {a: Input(str)},
        BadInputOrOutputException,
        "the DAG has no Output. Add one: Output('name'): pipeline.",
        id="no output",
    ),
    pytest.param(
        {a: Input(str), Output("o"): b},
        NotConnectedException,
        "Output('o'): b: 'b' is used, but nothing feeds it. Add b: dependency.",
        id="nothing feeds it",
    ),
    pytest.param(
        {a: Input(str), b: a, Output("o"): a},
        NotConnectedException,
        "'b' is fed, but nothing uses its output. Connect it to a pipeline or an Output, or remove it.",
        id="nothing uses it",
    ),
    pytest.param(
        {Output("o"): Input(str), a: b, b: c, c: b, Output("p"): a},
        BadTopologyException,
        "the DAG holds a cycle: b → c → b (each takes what the next one gives). Remove one of these pairs.",
        id="a cycle",
    ),
]


@pytest.mark.parametrize(("dag", "error", "message"), CASES)
def test_a_wrong_dag_is_refused_with_words_that_help(dag: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=says(message)) as caught:
        DAGPipeline(dag)

    assert type(caught.value) is error


d, e = Echo("d"), Echo("e")
CYCLE = {d: e, e: d}
UNFED = {Output("unfed"): c}
DUPLICATE = {Output(): {"twice": a}, Output("twice"): a}
MISMATCH = {Echo("n", int, int): Input(str)}
WRONG_KIND = {"not a pipeline": a}


@pytest.mark.parametrize(
    ("dag", "error"),
    [
        pytest.param({**WRONG_KIND, Output(): a}, InvalidDictionaryOutput, id="dictionary output before edges"),
        pytest.param({**DUPLICATE, **WRONG_KIND}, InvalidDAGException, id="form before names"),
        pytest.param({**DUPLICATE, **MISMATCH}, TypeMismatchException, id="types before names"),
        pytest.param({**DUPLICATE, d: a}, DuplicateNameException, id="names before the input"),
        pytest.param({**UNFED, **CYCLE}, BadInputOrOutputException, id="the input before connections"),
        pytest.param({**UNFED, **CYCLE, a: Input(str)}, NotConnectedException, id="connections before cycles"),
        pytest.param({**CYCLE, Output("o"): Input(str)}, BadTopologyException, id="cycles last"),
    ],
)
def test_checks_are_made_in_a_fixed_order(dag: Any, error: type[Exception]) -> None:
    with pytest.raises(error) as caught:
        DAGPipeline(dag)

    assert type(caught.value) is error


def test_edges_are_checked_one_after_the_other() -> None:
    mismatch, wrong_kind = {Echo("n", int, int): Input(str)}, {"not a pipeline": a}
    with pytest.raises(TypeMismatchException):
        DAGPipeline({**mismatch, **wrong_kind})
    with pytest.raises(InvalidDAGException, match="a destination is a Pipeline or an Output"):
        DAGPipeline({**wrong_kind, **mismatch})


def test_an_unknown_key_names_the_outputs_there_are() -> None:
    with pytest.raises(UnknownKeyException, match=says("'split'['z']: no such output; choose one of ['x', 'y'].")):
        split["z"]


def test_a_key_of_a_single_output_says_so() -> None:
    message = "'a'['x']: the output of 'a' is str, which has no keys. Use the pipeline itself as the dependency."
    with pytest.raises(KeyError, match=says(message)):
        a["x"]


def test_a_key_of_something_else_is_refused() -> None:
    with pytest.raises(InvalidDAGException, match=says("Key expects a Pipeline, got str: 'split'.")):
        Key("split", "x")  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["", 3])
def test_an_output_is_named_by_a_string(name: Any) -> None:
    message = f"an Output has a name (str), or none as Output(); got {name!r}. Use a str."
    with pytest.raises(InvalidDAGException, match=says(message)):
        Output(name)


def test_join_is_product_or_zip() -> None:
    with pytest.raises(InvalidDAGException, match=says("D: join should be one of product, zip, got 'cross'.")):
        DAGPipeline({Output("o"): Input(str)}, "D", join="cross")  # type: ignore[arg-type]


def test_a_pipeline_without_types_is_refused_where_it_is_connected() -> None:
    class Untyped(Pipeline):
        def transform(self, input_object: Any) -> list[Any]:
            return [input_object]

    message = (
        "Untyped.input_type is not declared. Call super().__init__(input_type=..., output_type=..., name=...), or set "
        "it as a class attribute."
    )
    with pytest.raises(InvalidTypeSignatureException, match=says(message)):
        DAGPipeline({Untyped(): Input(str), Output("o"): Input(str)})
