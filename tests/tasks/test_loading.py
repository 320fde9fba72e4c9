"""Cached tasks and mixtures as model batches: resumed = uninterrupted, packed = unpacked, no token lost."""

from __future__ import annotations

import copy
import functools
import json
import pickle
import shutil
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cached_tasks import FEATURES, VOCABULARY, build_caches, fresh_registries, pair_task, pairs, some_lengths
from hypothesis import given, settings
from hypothesis import strategies as st
from loading_tasks import LENGTHS, SIZES, cached_tasks_to_load, global_rows, text

from beam_pipes import tasks
from beam_pipes.errors import LoaderError, TaskError
from beam_pipes.loader.world import HostSlice
from beam_pipes.telemetry import Telemetry
from beam_pipes.transforms.converters import (
    DecoderFeatureConverter,
    EncDecFeatureConverter,
    EncoderFeatureConverter,
    FeatureConverter,
    FeatureSpec,
    LMFeatureConverter,
    PassThroughFeatureConverter,
    PrefixLMFeatureConverter,
    PrePackedEncDecFeatureConverter,
    PrePackedLMFeatureConverter,
)


@pytest.fixture(scope="module")
def caches(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with cached_tasks_to_load(tmp_path_factory.mktemp("caches")) as directory:
        yield directory


def examples_of(name: str) -> Counter[str]:
    """All examples of a task, as `Task.examples` gives them from the cache, without those that have no token."""
    task = tasks.get_mixture_or_task(name)
    made = (
        json.dumps([example["inputs"].tolist(), example["targets"].tolist()])
        for example in task.examples(LENGTHS, use_cached=True)
        if len(example["inputs"]) + len(example["targets"])
    )
    return Counter(made)


def segments(tokens: np.ndarray, ids: np.ndarray) -> dict[int, list[int]]:
    return {number: tokens[ids == number].tolist() for number in np.unique(ids[ids > 0]).tolist()}


def examples_in(batches: Any) -> Counter[str]:
    """The examples in the rows of an encoder-decoder, packed or padded."""
    found: Counter[str] = Counter()
    for batch in batches:
        for row in range(len(batch["encoder_input_tokens"])):
            if "encoder_segment_ids" in batch:
                sources = segments(batch["encoder_input_tokens"][row], batch["encoder_segment_ids"][row])
                targets = segments(batch["decoder_target_tokens"][row], batch["decoder_segment_ids"][row])
            else:
                weights = batch["decoder_loss_weights"][row]
                tokens = batch["encoder_input_tokens"][row]
                sources = {1: tokens[: np.flatnonzero(tokens).max(initial=-1) + 1].tolist()}
                targets = {1: batch["decoder_target_tokens"][row][: weights.sum()].tolist()}
            for number in sources.keys() | targets.keys():
                found[json.dumps([sources.get(number, []), targets.get(number, [])])] += 1
    return found


@settings(max_examples=25, deadline=None)
@given(
    stops=st.lists(st.integers(0, 9), max_size=3),
    hosts=st.lists(st.integers(1, 4), min_size=4, max_size=4),
    seed=st.integers(0, 2**32),
    exhaustion=st.sampled_from(["drop", "stop", "repeat"]),
    pack=st.booleans(),
    workers=st.integers(0, 1),
)
def test_a_resumed_run_is_the_uninterrupted_one(caches, stops, hosts, seed, exhaustion, pack, workers) -> None:
    plan = tasks.plan_loading("abc", LENGTHS, EncDecFeatureConverter(pack=pack), exhaustion=exhaustion)

    def loaders(count: int) -> list[Any]:
        return [
            plan.loader(
                batch_size=8,
                seed=seed,
                num_epochs=2,
                workers=workers,
                shard_info=tasks.ShardInfo(host, count),
            )
            for host in range(count)
        ]

    whole = global_rows(loaders(1), 40)
    found: list[list[str]] = []
    state = None
    for stop, count in zip([*stops, 40], hosts, strict=False):
        now = loaders(count)
        for loader in now:
            if state is not None:
                loader.set_state(state)
        found += global_rows(now, min(stop, len(whole) - len(found)))
        states = {loader.get_state() for loader in now}
        assert len(states) == 1, "hosts differ in their state"
        (state,) = states
        assert len(state) < 1000

    assert found == whole


@pytest.mark.parametrize("name", ["a", "long", "doubled", "divided"])
def test_packed_and_unpacked_rows_hold_the_same_examples(caches, name: str) -> None:
    expected = examples_of(name)

    packed = tasks.get_loader(name, LENGTHS, EncDecFeatureConverter(), batch_size=4, last="partial", seed=3)

    assert expected and examples_in(packed) == expected
    if name != "divided":  # which makes other numbers of examples than records
        padded = tasks.get_loader(
            name, LENGTHS, EncDecFeatureConverter(pack=False), batch_size=4, last="partial", seed=3
        )
        found = examples_in(padded)
        del found[json.dumps([[], []])]
        assert found == expected


def test_an_epoch_of_a_mixture_is_all_examples_of_its_tasks(caches) -> None:
    expected = examples_of("a") + examples_of("b") + examples_of("c")

    batches = list(tasks.get_loader("abc", LENGTHS, EncDecFeatureConverter(), batch_size=4, last="partial", seed=1))

    assert examples_in(batches) == expected


CONVERTERS = [
    (LMFeatureConverter, "abc", {"targets": 32}),
    (EncDecFeatureConverter, "abc", LENGTHS),
    (PrefixLMFeatureConverter, "abc", LENGTHS),
    (functools.partial(PrefixLMFeatureConverter, False), "abc", LENGTHS),
    (DecoderFeatureConverter, "abc", LENGTHS),
    (DecoderFeatureConverter, "abc", {"targets": 32}),
    (functools.partial(EncoderFeatureConverter, 9), "aligned", {"inputs": 32, "targets": 32}),
]


@pytest.mark.parametrize("pack", [True, False])
@pytest.mark.parametrize(("make", "name", "lengths"), CONVERTERS)
def test_rows_have_the_fields_and_values_that_examples_give(caches, make, name: str, lengths, pack: bool) -> None:
    converter = make(pack=pack, bos_id=5)
    plan = tasks.plan_loading(name, lengths, converter)
    loader = plan.loader(batch_size=1, shuffle=False)

    rows = [{key: value[0] for key, value in batch.items()} for batch in loader]

    if pack:  # the examples of a row, packed as they come, give this row
        identity = {json.dumps(example): example for example in _converted_by_row(name, lengths, rows, converter)}
        assert len(identity) == len({json.dumps({k: v.tolist() for k, v in row.items()}) for row in rows})
    else:
        task = tasks.get_mixture_or_task(name)
        members = task.tasks if isinstance(task, tasks.Mixture) else [task]
        expected = Counter(
            json.dumps({key: row[key].tolist() for key in sorted(row)})
            for member in members
            for row in converter.convert_examples(_only(member, lengths), lengths)
        )
        assert Counter(json.dumps({key: row[key].tolist() for key in sorted(row)}) for row in rows) == expected


def _only(task: Any, lengths: Mapping[str, int]) -> Iterator[dict[str, Any]]:
    for example in task.examples(lengths, use_cached=True):
        yield {name: example[name] for name in lengths}


def _converted_by_row(name: str, lengths: Any, rows: Any, converter: FeatureConverter) -> Iterator[Any]:
    """Each row, after a comparison with what the converter makes of the examples that it holds."""
    for row in rows:
        ids = row.get("decoder_segment_ids", row.get("encoder_segment_ids"))
        examples = []
        for number in range(1, int(max(value.max() for key, value in row.items() if key.endswith("_ids"))) + 1):
            if "encoder_input_tokens" in row and "decoder_target_tokens" in row:
                examples.append(
                    {
                        "inputs": row["encoder_input_tokens"][row["encoder_segment_ids"] == number],
                        "targets": row["decoder_target_tokens"][row["decoder_segment_ids"] == number],
                    }
                )
            elif "encoder_target_tokens" in row:
                examples.append(
                    {
                        "inputs": row["encoder_input_tokens"][ids == number],
                        "targets": row["encoder_target_tokens"][ids == number],
                    }
                )
            else:
                tokens = row["decoder_target_tokens"][ids == number]
                cut = _inputs_in(row, ids == number) if "inputs" in lengths else 0
                examples.append({"inputs": tokens[:cut], "targets": tokens[cut:]})
        examples = [{key: example[key] for key in lengths} for example in examples]
        (expected,) = converter.convert_examples(examples, lengths)
        assert expected.keys() == row.keys()
        for key, value in expected.items():
            np.testing.assert_array_equal(row[key], value, err_msg=f"{key} of a row of {name}")
            assert row[key].dtype == value.dtype
        yield {key: value.tolist() for key, value in row.items()}


def _inputs_in(row: Mapping[str, np.ndarray], mine: np.ndarray) -> int:
    """The number of inputs of a segment: one less than what it attends to, and all of it where there are no targets."""
    visible = int(row["decoder_causal_attention"][mine].sum())
    everything = visible == int(mine.sum())
    last_is_target = row["decoder_target_tokens"][mine][-1:].tolist() == [1]
    return visible if everything and not last_is_target else visible - 1


@settings(max_examples=60, deadline=None)
@given(
    inputs=st.integers(1, 50),
    targets=st.integers(1, 50),
    converter=st.sampled_from([LMFeatureConverter, EncDecFeatureConverter, PrefixLMFeatureConverter]),
    pack=st.booleans(),
    name=st.sampled_from(["a", "long", "abc"]),
)
def test_tokens_in_are_tokens_out_and_what_is_reported(caches, inputs, targets, converter, pack, name) -> None:
    lengths = {"targets": targets} if converter is LMFeatureConverter else {"inputs": inputs, "targets": targets}
    provider = tasks.get_mixture_or_task(name)
    members = provider.tasks if isinstance(provider, tasks.Mixture) else [provider]

    plan = tasks.plan_loading(name, lengths, converter(pack=pack))

    joined = converter is PrefixLMFeatureConverter
    for rows, task in zip(plan.tasks, members, strict=True):
        stats = task.get_cached_stats()
        assert rows.totals is not None
        for feature, totals in rows.totals.items():
            stored = [f"{part}_tokens" for part in (lengths if joined else [feature])]
            assert totals.tokens_in == sum(stats[part] for part in stored)
            assert totals.tokens_in + totals.tokens_added == totals.tokens_out + totals.truncated_tokens
            assert totals.tokens_added == (stats["examples"] if feature == "targets" else 0)
    counted = sum(totals.tokens_out for rows in plan.tasks for totals in (rows.totals or {}).values())
    delivered = _tokens_of(plan.loader(batch_size=3, last="partial"), lengths, joined)
    assert delivered is None or counted == delivered


def _tokens_of(loader: Any, lengths: Mapping[str, int], joined: bool) -> int | None:
    total = 0
    for batch in loader:
        names = [name for name in batch if name.endswith("_segment_ids")]
        if not names:
            return None
        total += sum(int((batch[name] > 0).sum()) for name in names)
    return total


def test_the_plan_is_shown_before_training(caches) -> None:
    plan = tasks.plan_loading("ab", {"inputs": 20, "targets": 16}, EncDecFeatureConverter())

    shown = str(plan)

    assert plan.truncated_tokens and plan.waste and plan.rows == sum(task.rows for task in plan.tasks)
    assert f"ab, split train: {plan.rows} rows of 2 tasks, {plan.waste:.2%} padding" in shown
    assert "a  rate 0.7000  90 examples in" in shown and f"{plan.truncated_tokens:,} truncated" in shown


def test_rows_are_full_where_they_are_packed_at_best_fit(tmp_path: Path) -> None:
    lengths = {"inputs": 256, "targets": 256}
    rng = np.random.default_rng(7)
    with fresh_registries(tmp_path):
        sizes = np.clip(np.exp(rng.normal(2.7, 1.0, (10_000, 2))), 1, 128).astype(int)
        pair_task("ordinary", pairs(1, [(int(i), int(t)) for i, t in sizes]))
        build_caches(tmp_path)

        lm = tasks.plan_loading("ordinary", {"targets": 256}, LMFeatureConverter())
        prefix = tasks.plan_loading("ordinary", lengths, PrefixLMFeatureConverter())
        enc_dec = tasks.plan_loading("ordinary", lengths, EncDecFeatureConverter())
        online = EncDecFeatureConverter().convert_examples(_only(tasks.TaskRegistry.get("ordinary"), lengths), lengths)

        assert lm.waste is not None and lm.waste <= 0.002
        assert prefix.waste is not None and prefix.waste <= 0.002
        assert enc_dec.rows <= 0.85 * sum(1 for _ in online)


@pytest.mark.parametrize("weights", [{"a": 3, "b": 1, "c": 2}, {"a": 1, "b": 1, "c": 8}])
def test_every_prefix_has_the_examples_that_the_rates_ask_for(caches, weights: dict[str, int]) -> None:
    mixture = tasks.Mixture("rated", list(weights.items()), exhaustion="repeat")
    plan = tasks.plan_loading(mixture, LENGTHS, EncDecFeatureConverter())
    owner = {row: name for name in weights for row in _rows_of(name)}
    examples = {rows.task: rows.examples / rows.rows for rows in plan.tasks}
    shares = {rows.task: rows.rate / examples[rows.task] for rows in plan.tasks}
    total = sum(shares.values())

    seen: Counter[str] = Counter()
    for number, (row,) in enumerate(global_rows([plan.loader(batch_size=1, seed=5)], 300), start=1):
        seen[owner[row]] += 1
        assert all(abs(seen[name] - number * share / total) < 1.01 for name, share in shares.items())


def _rows_of(name: str) -> list[str]:
    return [
        row
        for rows in global_rows([tasks.get_loader(name, LENGTHS, EncDecFeatureConverter(), batch_size=1)])
        for row in rows
    ]


def test_rates_may_be_functions_with_caps_and_temperature_and_unimax(caches) -> None:
    def rates_of(mixture: tasks.Mixture) -> dict[str, float]:
        plan = tasks.plan_loading(mixture, LENGTHS, EncDecFeatureConverter())
        return {rows.task: round(rows.rate, 6) for rows in plan.tasks}

    by_size = functools.partial(tasks.mixing_rate_num_examples, maximum=90)
    heated = functools.partial(tasks.mixing_rate_num_examples, temperature=2.0)
    sizes = {name: tasks.TaskRegistry.get(name).get_cached_stats()["examples"] for name in SIZES}
    unimax = tasks.unimax_rates(sizes, budget=240, max_epochs=2)

    assert rates_of(tasks.Mixture("capped", list(SIZES), by_size)) == {
        name: round(min(90, size) / 217, 6) for name, size in SIZES.items()
    }
    roots = {name: size**0.5 for name, size in SIZES.items()}
    assert rates_of(tasks.Mixture("heated", list(SIZES), heated)) == {
        name: round(root / sum(roots.values()), 6) for name, root in roots.items()
    }
    assert rates_of(tasks.Mixture("unimax", list(unimax.items()))) == {
        name: round(rate / 240, 6) for name, rate in unimax.items()
    }


def test_exhaustion_drops_stops_or_repeats(caches) -> None:
    count = {
        policy: tasks.plan_loading("even", LENGTHS, EncDecFeatureConverter(), exhaustion=policy)
        .loader(batch_size=1)
        .rows_per_epoch
        for policy in ("drop", "stop", "repeat")
    }
    rows = {name: tasks.plan_loading(name, LENGTHS, EncDecFeatureConverter()).rows for name in ("a", "b")}

    assert count["drop"] == rows["a"] + rows["b"]
    assert count["stop"] is not None and count["stop"] < count["drop"]
    assert count["repeat"] is None
    with pytest.raises(TaskError, match="exhaustion should be one of drop, stop, repeat, got 'wait'"):
        tasks.plan_loading("ab", LENGTHS, EncDecFeatureConverter(), exhaustion="wait")  # type: ignore[arg-type]


def test_a_step_that_draws_draws_again_each_epoch_and_the_same_when_resumed(caches) -> None:
    def loaders(count: int) -> list[Any]:
        converter = EncDecFeatureConverter(pack=False)
        return [
            tasks.get_loader(
                "noisy", LENGTHS, converter, batch_size=8, seed=4, num_epochs=2, shard_info=tasks.ShardInfo(i, count)
            )
            for i in range(count)
        ]

    whole = global_rows(loaders(1))
    first = loaders(2)
    begun = global_rows(first, 3)
    rest = loaders(4)
    for loader in rest:
        loader.set_state(first[1].get_state())

    assert begun + global_rows(rest) == whole
    drawn = [json.dumps(json.loads(row)["encoder_input_tokens"]) for batch in whole for row in batch]
    assert len(set(drawn)) == len(drawn) == 80
    seeded = global_rows([tasks.get_loader("noisy", LENGTHS, EncDecFeatureConverter(pack=False), batch_size=8, seed=5)])
    assert not {row for batch in seeded for row in batch} & {row for batch in whole for row in batch}


@pytest.mark.parametrize(("name", "pack"), [("abc", True), ("abc", False), ("noisy", False)])
def test_loaders_of_tasks_are_copied_with_their_place_and_end_where_they_were_restored_at_the_end(
    caches, name: str, pack: bool
) -> None:
    def loader() -> Any:
        return tasks.get_loader(name, LENGTHS, EncDecFeatureConverter(pack=pack), batch_size=8, seed=4, num_epochs=2)

    whole = global_rows([loader()])
    running = loader()
    begun = global_rows([running], 3)

    ways = [copy.deepcopy, lambda loader: pickle.loads(pickle.dumps(loader))]
    for copied in [
        way(running) for way in ways[: 1 if name == "noisy" else 2]
    ]:  # its steps are functions in a function
        assert begun + global_rows([copied]) == whole
        again = loader()
        again.set_state(copied.get_state())
        assert global_rows([again]) == [] and again.steps_left == 0


def test_steps_that_change_the_number_of_examples_can_be_packed(caches) -> None:
    plan = tasks.plan_loading("divided", LENGTHS, EncDecFeatureConverter())

    assert plan.tasks[0].examples == sum(examples_of("divided").values()) != 50
    assert max(map(len, (json.loads(example)[1] for example in examples_of("divided")))) <= 10


def test_passed_through_and_stored_rows(tmp_path: Path) -> None:
    ids = tasks.Feature(VOCABULARY, add_eos=False)
    weights = tasks.Feature(tasks.PassThroughVocabulary(9), add_eos=False, dtype=np.float32)
    matrix = tasks.Feature(tasks.PassThroughVocabulary(9), add_eos=False, dtype=np.float32, rank=2)
    rows = [
        {
            "targets": np.arange(n, dtype=np.int32),
            "weights": np.full(n, n / 8, np.float32),
            "vectors": np.full((n, 3), n, np.float32),
            "number": np.int64(n),
        }
        for n in range(1, 9)
    ]
    model = {name: ids for name in PrePackedLMFeatureConverter.BATCH_FEATURES}
    packed = list(LMFeatureConverter().convert_examples([{"targets": row["targets"]} for row in rows], {"targets": 12}))
    both = list(
        EncDecFeatureConverter().convert_examples(
            [{"inputs": row["targets"], "targets": row["targets"]} for row in rows], {"inputs": 12, "targets": 12}
        )
    )
    stored = [
        {
            "inputs": row["encoder_input_tokens"],
            "targets": row["decoder_target_tokens"],
            **{f"inputs_{part}": row[f"encoder_{part}"] for part in ("segment_ids", "positions")},
            **{f"targets_{part}": row[f"decoder_{part}"] for part in ("segment_ids", "positions")},
        }
        for row in both
    ]
    with fresh_registries(tmp_path):
        pair_task("weighted", rows, [], {"targets": ids, "weights": weights, "vectors": matrix})  # type: ignore[arg-type]
        pair_task("model_rows", packed, [], model)  # type: ignore[arg-type]
        pair_task("enc_dec_rows", stored, [], {name: ids for name in stored[0]})  # type: ignore[arg-type]
        build_caches(tmp_path)
        passed = {"weights": FeatureSpec(np.float32), "vectors": FeatureSpec(np.float32, rank=2)}
        lengths = {"targets": 10, "weights": 10, "vectors": 10}

        for pack in (True, False):
            converter = LMFeatureConverter(pack=pack, passthrough_features=passed)
            for batch in tasks.get_loader("weighted", lengths, converter, batch_size=2, last="partial"):
                data = batch["decoder_loss_weights"] > 0
                assert batch["weights"].dtype == np.float32 and batch["vectors"].shape == (*data.shape, 3)
                assert np.array_equal(batch["weights"] > 0, data)
                assert np.array_equal(batch["vectors"][..., 0], batch["weights"] * 8)
        scalar = LMFeatureConverter(pack=False, passthrough_features={"number": FeatureSpec(np.int64, rank=0)})
        for batch in tasks.get_loader("weighted", {"targets": 10}, scalar, batch_size=2):
            assert np.array_equal(batch["number"], batch["decoder_loss_weights"].sum(axis=1))

        found = list(
            tasks.get_loader("model_rows", {"targets": 12}, PrePackedLMFeatureConverter(), batch_size=1, shuffle=False)
        )
        assert [text(batch) for batch in found] == [text({k: v[None] for k, v in row.items()}) for row in packed]
        loader = tasks.get_loader(
            "enc_dec_rows",
            {"inputs": 12, "targets": 12},
            PrePackedEncDecFeatureConverter(),
            batch_size=1,
            shuffle=False,
        )
        assert [text(batch) for batch in loader] == [text({k: v[None] for k, v in row.items()}) for row in both]
        plain = tasks.get_loader("weighted", {}, PassThroughFeatureConverter(), batch_size=8, shuffle=False)
        batch = plain.batch_at(0)
        assert sorted(batch) == ["targets", "vectors", "weights"] and batch["vectors"].shape == (8, 8, 3)
        hosts = [
            tasks.get_loader(
                "weighted",
                {},
                PassThroughFeatureConverter(),
                batch_size=8,
                shuffle=False,
                shard_info=tasks.ShardInfo(i, 3),
            )
            for i in range(3)
        ]
        for name, values in batch.items():
            parts = [host.batch_at(0)[name] for host in hosts]
            assert np.array_equal(np.concatenate(parts), values)


def test_hosts_are_refused_rows_whose_length_is_known_when_they_are_read(caches) -> None:
    def loader(lengths: Mapping[str, int], hosts: int) -> Any:
        converter = PassThroughFeatureConverter()
        return tasks.get_loader("noisy", lengths, converter, batch_size=4, shard_info=tasks.ShardInfo(0, hosts))

    assert loader({}, 1).batch_at(0)["inputs"].shape[0] == 4
    assert loader(LENGTHS, 2).batch_at(0)["inputs"].shape == (2, 40)
    with pytest.raises(
        LoaderError,
        match="feature 'inputs' is padded to the longest row of the global batch, .* on every host, .* Give 'inputs' a "
        "length",
    ):
        loader({}, 2)
    everything = loader({}, 1)
    with pytest.raises(LoaderError, match="Give 'inputs' a length"):
        everything.take_share(HostSlice(index=0, count=2, chosen_by="sharding"))
    assert (everything.host_index, everything.host_count) == (0, 1)


def test_three_hundred_cached_tasks_are_one_loader(tmp_path: Path) -> None:
    with fresh_registries(tmp_path):
        pair_task("t0", pairs(1, some_lengths(1, 12)))
        build_caches(tmp_path)
        source, steps = tasks.TaskRegistry.get("t0").source, tasks.TaskRegistry.get("t0").preprocessors
        for index in range(1, 300):
            shutil.copytree(tmp_path / "t0", tmp_path / f"t{index}")
            tasks.TaskRegistry.add(f"t{index}", source, FEATURES, steps)
        mixture = tasks.Mixture("many", [(f"t{index}", 1 + index % 7) for index in range(300)])

        loader = tasks.get_loader(mixture, {"targets": 64}, LMFeatureConverter(), batch_size=64, seed=2)
        first = global_rows([loader], 3)
        state = loader.get_state()
        again = tasks.get_loader(mixture, {"targets": 64}, LMFeatureConverter(), batch_size=64, seed=2)
        again.set_state(state)

        assert len(state) < 1000
        assert global_rows([again], 2) == global_rows([loader], 2) and len(first) == 3
        rows = tasks.plan_loading("t0", {"targets": 64}, LMFeatureConverter()).rows
        assert loader.rows_per_epoch == 300 * rows


@settings(max_examples=30, deadline=None)
@given(hosts=st.integers(1, 9), shuffle=st.booleans(), seed=st.none() | st.integers(0, 99))
def test_shares_of_cached_examples_lose_and_repeat_nothing(caches, hosts: int, shuffle: bool, seed: int | None) -> None:
    task = tasks.TaskRegistry.get("c")

    shares = [
        [
            json.dumps([example["inputs"].tolist(), example["targets"].tolist()])
            for example in task.examples(
                LENGTHS, use_cached=True, shuffle=shuffle, seed=seed, shard_info=tasks.ShardInfo(host, hosts)
            )
        ]
        for host in range(hosts)
    ]

    assert sum(map(Counter, shares), Counter()) == Counter(
        json.dumps([e["inputs"].tolist(), e["targets"].tolist()]) for e in task.examples(LENGTHS, use_cached=True)
    )
    assert max(map(len, shares)) - min(map(len, shares)) <= 1


@pytest.mark.parametrize("pack", [True, False])
def test_telemetry_names_the_sources_of_a_mixture_of_tasks(caches: Path, pack: bool) -> None:
    # One cache is read as it is, one through steps in Python.
    tasks.MixtureRegistry.add(f"watched_{pack}", [("a", 1), ("doubled", 1)])
    plan = tasks.plan_loading(f"watched_{pack}", LENGTHS, EncDecFeatureConverter(pack=pack), exhaustion="drop")
    telemetry = Telemetry(plan.loader(batch_size=1))

    for _ in telemetry:
        pass

    assert telemetry.totals().rows_by_source == {task.task: task.rows for task in plan.tasks}
