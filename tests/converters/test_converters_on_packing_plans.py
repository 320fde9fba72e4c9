"""Packing plans over a cache, through the converters: every token once, in the fields that online packing gives."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from beam_pipes.cache import (
    Cache,
    ExampleCodec,
    ExampleSpec,
    FeatureSpec,
    Manifest,
    ShardWriter,
    SplitManifest,
    publish,
    shard_file_name,
    snapshot_directory,
)
from beam_pipes.errors import LoaderError, TaskError
from beam_pipes.loader import Loader
from beam_pipes.loader.packing import PackingPlan, pack
from beam_pipes.transforms.converters import (
    DecoderFeatureConverter,
    EncDecFeatureConverter,
    JoinedSplit,
    LMFeatureConverter,
    PrefixLMFeatureConverter,
    PrefixSuffixLMFeatureConverter,
)

PARTS = ("inputs", "targets", "suffixes")
SPEC = ExampleSpec({**{part: FeatureSpec("uint16", shape=(None,)) for part in PARTS}, "id": FeatureSpec("int64")})


def examples(count=400, longest=(40, 30, 10)):
    lengths = np.random.default_rng(0).integers(0, np.array(longest) + 1, (count, 3))
    return [
        {
            # Token 0 occurs too: it is data.
            **{
                part: np.arange(size, dtype=np.uint16) + 100 * (number % 600)
                for part, size in zip(PARTS, row, strict=True)
            },
            "id": number,
        }
        for number, row in enumerate(lengths.tolist())
    ]


@pytest.fixture(scope="module")
def split(tmp_path_factory):
    path = tmp_path_factory.mktemp("parts") / "cache"
    directory = snapshot_directory(path, "0123456789abcdef")
    Path(directory).mkdir(parents=True)
    with ShardWriter(directory, shard_file_name("demo", "train", 0, 1), codec=ExampleCodec(SPEC)) as writer:
        for ordinal, example in enumerate(examples()):
            writer.write(example, ordinal=ordinal)
        entry = writer.commit()
    train = SplitManifest.from_entries([entry], spec=SPEC)
    publish(path, Manifest(name="demo", snapshot="0123456789abcdef", splits={"train": train}))
    return Cache.open(path)["train"]


def rows_of(plan, converter):
    """All converted rows of an epoch, and the examples in them by row, in the order of their segments."""
    batches = list(Loader(plan, batch_size=4, shuffle=False, epochs=1, last="pad"))
    converted = [converter.convert_rows({k: v for k, v in batch.items() if k != "valid"}) for batch in batches]
    valid = np.concatenate([batch["valid"] for batch in batches])
    rows = {name: np.concatenate([batch[name] for batch in converted])[valid] for name in converted[0]}
    records = [plan.records[first:last] for first, last in zip(plan.bin_offsets, plan.bin_offsets[1:], strict=False)]
    return rows, records


def expected_rows(converter, records, lengths):
    stream = examples()
    for row in records:
        members = [{part: stream[record][part].astype(np.int32) for part in lengths} for record in row]
        (converted,) = converter.convert_examples(members, lengths)
        yield converted


def assert_rows_are_those_of_packed_examples(rows, records, converter, lengths):
    for index, expected in enumerate(expected_rows(converter, records, lengths)):
        assert expected.keys() == rows.keys()
        for name, value in expected.items():
            np.testing.assert_array_equal(rows[name][index], value, err_msg=f"{name} of row {index}")
            assert rows[name].dtype == value.dtype


def test_a_plan_of_one_feature_feeds_the_language_model(split):
    plan = pack(split, sequence_length=128, feature="targets")

    rows, records = rows_of(plan, LMFeatureConverter(bos_id=7))

    assert plan.waste < 0.02
    assert rows["decoder_loss_weights"].sum() == split.lengths("targets").sum()
    assert_rows_are_those_of_packed_examples(rows, records, LMFeatureConverter(bos_id=7), {"targets": 128})


@pytest.mark.parametrize("converter", [EncDecFeatureConverter(), PrefixLMFeatureConverter(), DecoderFeatureConverter()])
def test_a_plan_of_two_features_feeds_encoder_decoder_and_prefix_models(split, converter):
    lengths = {"inputs": 128, "targets": 100}
    plan = pack(split, sequence_length=lengths)

    rows, records = rows_of(plan, converter)

    assert_rows_are_those_of_packed_examples(rows, records, converter, lengths)


@pytest.mark.parametrize(
    ("parts", "converter"),
    [
        (("inputs", "targets"), PrefixLMFeatureConverter(bos_id=7)),
        (PARTS, PrefixSuffixLMFeatureConverter()),
        (PARTS, DecoderFeatureConverter()),
        (("inputs", "targets"), DecoderFeatureConverter()),
    ],
)
def test_a_plan_of_joined_parts_wastes_as_little_as_one_of_a_single_feature(split, parts, converter):
    joined = JoinedSplit(split, parts)
    plan = pack(joined, sequence_length=dict.fromkeys(joined.features, 256))

    rows, records = rows_of(plan, converter)

    assert len(plan) == plan.lower_bound
    # Online packing joins examples too, in rows as long as the lengths of the parts together.
    lengths = dict.fromkeys(parts, 256 // len(parts))
    lengths["inputs"] += 256 % len(parts)
    assert_rows_are_those_of_packed_examples(rows, records, converter, lengths)


def test_a_plan_of_joined_parts_belongs_to_those_parts(split, tmp_path):
    joined = JoinedSplit(split)
    plan = pack(joined, sequence_length=dict.fromkeys(joined.features, 256))
    plan.save(tmp_path / "plan")

    assert len(PackingPlan.load(tmp_path / "plan", JoinedSplit(split))) == len(plan)
    with pytest.raises(LoaderError, match="this packing plan was made for"):
        PackingPlan.load(tmp_path / "plan", JoinedSplit(split, PARTS))


@pytest.mark.parametrize("part", ["id", "labels"])
def test_parts_that_are_no_sequences_are_refused(split, part):
    with pytest.raises(TaskError, match=f"joining needs sequences of integers 'inputs', '{part}'; feature '{part}' of"):
        JoinedSplit(split, ("inputs", part))


def test_a_joined_split_offers_only_what_is_joined(split):
    with pytest.raises(TaskError, match="there is no feature 'suffixes'. There are: targets, inputs_ends"):
        JoinedSplit(split).lengths("suffixes")
