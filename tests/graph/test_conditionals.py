"""Conditions over samples: `if`, ternaries, `and`, `or`, `not`, early returns, helpers, and the combinator."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from graph_outputs import numbered

from beam_pipes.errors import ConditionError, GraphError
from beam_pipes.graph import Pipeline, TensorList, cond, do_not_convert, pipeline_def, types
from beam_pipes.graph.host_run import Held
from beam_pipes.transforms import fn

COUNT = 8


def values(define: Any, **options: Any) -> Any:
    """The first output of a graph over the numbers 0 … 7, as a list."""
    pipe = pipeline_def(batch_size=COUNT, enable_conditionals=True, seed=3, **options)(define)()
    return [np.asarray(one).tolist() for one in pipe.run()[0]]


def number() -> Any:
    return fn.external_source(numbered(COUNT), batch=False, dtype=types.INT64, ndim=0)


def test_if_elif_else_run_on_their_samples_and_keep_the_order() -> None:
    seen: dict[str, list[int]] = {"low": [], "middle": [], "high": []}

    def noting(name: str, node: Any) -> Any:
        def note(one: Any) -> Any:
            seen[name].append(int(one))
            return one

        return fn.python_function(node, function=note)

    def define() -> Any:
        x = number()
        if x < 2:
            y = noting("low", x) * 10
        elif x < 5:
            y = noting("middle", x) * 100
        else:
            y = noting("high", x) * 1000
        return y

    assert values(define) == [0, 10, 200, 300, 400, 5000, 6000, 7000]
    assert seen == {"low": [0, 1], "middle": [2, 3, 4], "high": [5, 6, 7]}


def test_numbers_are_conditions_by_whether_they_are_zero() -> None:
    def define() -> Any:
        x = number()
        result = x
        if x % 3:
            result = -x
        return result

    assert values(define) == [0, -1, -2, 3, -4, -5, 6, -7]


def test_the_random_rotation_of_the_reference_turns_a_part_of_the_samples(files_root: str) -> None:
    @pipeline_def(batch_size=10, enable_conditionals=True, seed=1)
    def random_rotate() -> Any:
        images, _ = fn.readers.file(device="cpu", file_root=files_root)
        images = fn.reshape(images[:4], shape=(2, 2))
        do_rotate = fn.random.coin_flip(probability=0.25, dtype=types.DALIDataType.BOOL)
        if do_rotate:
            result = fn.flip(images, horizontal=0, vertical=1)
        else:
            result = images
        return result, do_rotate

    turned, done = 0, 0
    pipe = random_rotate()
    for _ in range(5):
        result, do_rotate = pipe.run()
        for one, was in zip(result, do_rotate, strict=True):
            assert one.tolist() == ([[2, 3], [0, 1]] if was else [[0, 1], [2, 3]])
            turned, done = turned + int(was), done + 1
    assert 0 < turned < done / 2


def test_nesting_and_several_variables() -> None:
    def define() -> Any:
        x = number()
        a, b = x, x
        if x > 1:
            a = x + 100
            if x > 5:
                b = a * 2
            else:
                b = -a
        return a * 10000 + b

    expected = []
    for x in range(COUNT):
        a = x + 100 if x > 1 else x
        b = (a * 2 if x > 5 else -a) if x > 1 else x
        expected.append(a * 10000 + b)
    assert values(define) == expected


def returns_early(x: Any) -> Any:
    if x > 1:
        if x > 4:
            return x * 7
        x = x + 5
        if x == 8:
            return x
    return -x


def test_helpers_are_converted_with_their_early_returns() -> None:
    def define() -> Any:
        return returns_early(number())

    assert values(define) == [returns_early(x) for x in range(COUNT)]


def test_and_or_not_decide_sample_by_sample_and_stop_early() -> None:
    seen: list[int] = []

    def define() -> Any:
        x = number()

        def asked(node: Any) -> Any:
            return fn.python_function(node, function=lambda one: (seen.append(int(one)), np.bool_(one > 5))[1])

        return (x < 3 or asked(x)) and not x == 0

    assert values(define) == [x != 0 and (x < 3 or x > 5) for x in range(COUNT)]
    assert seen == [3, 4, 5, 6, 7]


def test_ternaries() -> None:
    def define() -> Any:
        x = number()
        return x + 1 if x > 3 else x - 1

    assert values(define) == [-1, 0, 1, 2, 5, 6, 7, 8]


def test_python_conditions_stay_pythons() -> None:
    def define(flag: bool = True) -> Any:
        x = number()
        names = []
        for name in ("a", "b"):
            if name == "b" and flag or not name:
                names.append(name)
        return x + len(names)

    assert values(define) == [x + 1 for x in range(COUNT)]


def test_constants_in_branches_become_data() -> None:
    def define() -> Any:
        x = number()
        if x > 3:
            y = 1
        else:
            y = 0
        return y * 2

    assert values(define) == [0, 0, 0, 0, 2, 2, 2, 2]


def test_draws_in_a_branch_are_those_of_the_record() -> None:
    def plainly() -> Any:
        number()
        return fn.random.uniform(range=(0.0, 1.0), name="u")

    def in_a_branch() -> Any:
        x = number()
        if x % 2 == 0:
            y = fn.random.uniform(range=(0.0, 1.0), name="u")
        else:
            y = np.float32(0)
        return y

    drawn = values(plainly)
    assert values(in_a_branch) == [one if index % 2 == 0 else 0 for index, one in enumerate(drawn)]


def test_ragged_samples_and_empty_branches() -> None:
    def define() -> Any:
        x = fn.external_source(lambda info: np.arange(info.idx_in_epoch), batch=False, dtype="int64", ndim=1)
        if x.shape()[0] > 100:
            y = x * 0
        elif x.shape()[0] > 2:
            y = x[:2]
        else:
            y = x
        return y

    assert values(define) == [[], [0], [0, 1]] + [[0, 1]] * 5


def test_cond_is_the_same_without_rewriting() -> None:
    pipe = Pipeline(batch_size=COUNT)
    with pipe:
        x = number()
        doubled = cond(x > 3, lambda: (x * 2, {"n": x}), lambda: (x, {"n": -x}))
        pipe.set_outputs(doubled[0], doubled[1]["n"], cond(True, lambda: x, lambda: x / 0))
    first, second, third = (one.as_array().tolist() for one in pipe.run())
    assert first == [0, 1, 2, 3, 8, 10, 12, 14] and second == [0, -1, -2, -3, 4, 5, 6, 7] and third == list(range(8))


@do_not_convert
def kept_as_it_is(x: Any) -> Any:
    return "not rewritten" if isinstance(x, tuple) and x else x


def uses_truth(x: Any) -> Any:
    return 1 if x else 0


def test_do_not_convert_stops_the_rewriting() -> None:
    def define() -> Any:
        return do_not_convert(uses_truth_kept)(number())

    with pytest.raises(ConditionError, match="the truth of the data node 'external_source' is not known"):
        values(define)

    def converted() -> Any:
        return uses_truth(number()) + kept_as_it_is(number())

    assert values(converted)[:3] == [0, 2, 3]


def uses_truth_kept(x: Any) -> Any:
    return 1 if x else 0


@pytest.mark.parametrize(
    ("then", "orelse", "message"),
    [
        (
            lambda x: x,
            lambda x: x / 2,
            r"what the branches give should be alike .* is dtype int64 \(.*\) in one, dtype flo",
        ),
        (lambda x: x, lambda x: fn.stack(x, x), "rank 0 .* in one, rank 1"),
        (lambda x: (x, x), lambda x: (x,), "2 values in one, 1 values in the other"),
        (lambda x: {"a": x}, lambda x: {"b": x}, r"the keys \['a'\] in one, the keys \['b'\]"),
        (lambda x: x, lambda x: "text", "a data node int64.* in one, str 'text' in the other"),
        (lambda x: (x, x), lambda x: (x, x / 2), r"what the branches give\[1\]"),
    ],
)
def test_branches_that_differ_are_refused_at_definition(then: Any, orelse: Any, message: str) -> None:
    with Pipeline(batch_size=2):
        x = number()
        with pytest.raises(ConditionError, match=message):
            cond(x > 3, lambda: then(x), lambda: orelse(x))


def test_the_variable_that_differs_is_named() -> None:
    def different_dtype() -> Any:
        x = number()
        if x > 3:
            result = x / 2
        else:
            result = x
        return result

    def one_branch_only() -> Any:
        x = number()
        if x > 3:
            made = x / 2
        return made

    with pytest.raises(
        ConditionError, match="the variable 'result' should be alike in both branches .*dtype float32"
    ) as caught:
        values(different_dtype)
    assert caught.value.variable == "the variable 'result'" and "test_conditionals.py" in str(caught.value)
    with pytest.raises(ConditionError, match="the variable 'made' is set in one branch .* and used after it"):
        values(one_branch_only)


def test_conditions_are_numbers_of_rank_zero_on_the_host() -> None:
    with Pipeline(batch_size=2):
        x = number()
        with pytest.raises(ConditionError, match=r"`if` needs one number for each sample \(rank 0\), .* int64\[2\]"):
            cond(fn.stack(x, x), lambda: x, lambda: x)
        with pytest.raises(ConditionError, match="`if` needs .* on the host, and it lies on the device since"):
            cond(x.gpu(), lambda: x, lambda: x)

    def over_integers() -> Any:
        x = number()
        return x and x

    with pytest.raises(ConditionError, match="`and` takes booleans, and the data node gives int64"):
        values(over_integers)


def test_a_node_of_a_branch_stays_in_it() -> None:
    leaked = []
    with Pipeline(batch_size=2):
        x = number()

        def then() -> Any:
            leaked.append(x * 2)
            return leaked[0]

        cond(x > 3, then, lambda: x)
        with pytest.raises(GraphError, match="was made in one branch of a condition .* and is used outside of it"):
            fn.cast(leaked[0], dtype=types.FLOAT)


def as_an_output() -> Any:
    return sometimes(number() + 100)


def as_an_input() -> Any:
    return sometimes(number()) + 1


def as_an_input_in_a_branch() -> Any:
    return always(sometimes(number()))


def within_a_branch() -> Any:
    return nested(number())


@pytest.mark.parametrize("define", [as_an_output, as_an_input, as_an_input_in_a_branch, within_a_branch])
def test_a_branch_without_a_value_is_an_error_of_definition_with_its_line(define: Any) -> None:
    words = (
        r"returns nothing for some samples: return a value on all ways, .* on 'arithmetic.*' is True\. .*: if x > 3:"
    )
    with pytest.raises(ConditionError, match=words):
        pipeline_def(batch_size=8, enable_conditionals=True)(define)()


def sometimes(x: Any) -> Any:
    if x > 3:
        return x


def nested(x: Any) -> Any:
    if x > 2:
        if x > 3:
            return x
    else:
        return -x


def always(x: Any) -> Any:
    if x > 5 and x < 7 or x == 1:
        return x * 10
    y = x
    if not x > 4:
        y = x + 100
    elif x == 5:
        return x * 1000
    if x % 2 == 0:
        return y
    else:
        return -y


def test_several_early_returns_that_cover_all_ways_are_taken() -> None:
    def define() -> Any:
        return always(number())

    assert values(define) == [int(always(x)) for x in range(8)]


def test_samples_without_a_value_are_never_paired_with_others() -> None:
    held = Held(TensorList(np.array([4, 5])), np.array([2, 3]))
    assert held.take(np.array([3])).as_array().tolist() == [5]
    with pytest.raises(GraphError, match="returns nothing for some samples: return a value on all ways"):
        held.take(np.array([0, 1]))


class Halved:
    """A helper that keeps a number."""

    def __init__(self, over: int) -> None:
        self.over = over

    def __call__(self, x: Any) -> Any:
        if x > self.over:
            return x // 2
        return x


def test_objects_that_are_called_are_converted_unless_they_are_marked() -> None:
    def define() -> Any:
        return Halved(3)(number())

    def marked() -> Any:
        return do_not_convert(Halved(3))(number())

    assert values(define) == [0, 1, 2, 3, 2, 2, 3, 3]
    with pytest.raises(
        ConditionError, match=r"the truth of the data node .* \(test_conditionals.py:\d+ in __call__: if x"
    ):
        values(marked)


def test_lambdas_that_share_a_line_are_taken_as_they_are_unless_they_hold_a_condition() -> None:
    plus, minus = lambda x: x + 1, lambda x: x - 1
    up, down = lambda x: x + 1 if x > 3 else x, lambda x: x - 1 if x > 3 else x

    def define() -> Any:
        return minus(plus(plus(number())))

    def with_conditions() -> Any:
        return down(up(number()))

    assert values(define) == [1, 2, 3, 4, 5, 6, 7, 8]
    with pytest.raises(
        GraphError, match="cannot be rewritten for conditions: .* a lambda on a line of its own; use cond"
    ):
        values(with_conditions)


def test_loops_continue_for_all_samples_alike() -> None:
    def while_data() -> Any:
        x = number()
        while x > 3:
            x = x - 1
        return x

    def broken() -> Any:
        x = number()
        for _ in range(3):
            if x > 4:
                break
            x = x + 1
        return x

    def returned() -> Any:
        x = number()
        for _ in range(3):
            if x > 4:
                return x * 100
            x = x + 1
        return x

    def counted() -> Any:
        x = number()
        rounds = 0
        while rounds < 3:
            if x < 4:
                x = x + 1
            rounds += 1
            if rounds == 2:
                break
        return x

    for define, line in ((while_data, "while x > 3:"), (broken, "for _ in"), (returned, "for _ in")):
        words = (
            rf"a loop goes on or ends for all samples alike, .*\(test_conditionals.py:\d+ in {define.__name__}: {line}"
        )
        with pytest.raises(ConditionError, match=words):
            values(define)
    assert values(counted) == [2, 3, 4, 4, 4, 5, 6, 7]


def test_asserting_data_names_its_line() -> None:
    def define() -> Any:
        x = number()
        assert x > 3
        return x

    with pytest.raises(ConditionError, match=r"`assert` and `in` take no data nodes. \(.* in define: assert x > 3\)"):
        values(define)


def test_what_cannot_be_rewritten_says_what_to_do() -> None:
    namespace: dict[str, Any] = {"number": number}
    exec("def define():\n    return number()", namespace)
    pipe = pipeline_def(batch_size=2, enable_conditionals=True)(namespace["define"])
    assert pipe().run()[0].as_array().tolist() == [0, 1]
