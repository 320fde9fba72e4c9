"""What fills the places of a batch that no record fills."""

from __future__ import annotations

import numpy as np
import pytest
from loader_caches import write_split

from beam_pipes.cache import ExampleSpec, FeatureSpec
from beam_pipes.errors import LoaderError, SpecError
from beam_pipes.loader import Loader, Mixture, pack
from beam_pipes.loader.row_source import PaddedSplit

LABELLED = ExampleSpec(
    {
        "tokens": FeatureSpec("int32", shape=(None,)),
        "label": FeatureSpec("uint8"),
        "flag": FeatureSpec("bool"),
        "words": FeatureSpec("str", shape=(None,)),
        "blob": FeatureSpec("bytes"),
    }
)
IMAGES = ExampleSpec({"image": FeatureSpec("uint8", shape=(None, None)), "id": FeatureSpec("int64")})


@pytest.fixture(scope="module")
def labelled(tmp_path_factory):
    """Five records with 1 to 5 tokens, and no words."""
    examples = [
        {
            "tokens": np.arange(1, index + 2, dtype=np.int32),
            "label": 9,
            "flag": True,
            "words": np.array([], object),
            "blob": b"x",
        }
        for index in range(5)
    ]
    return write_split(tmp_path_factory.mktemp("labelled") / "cache", examples, LABELLED)


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    """Ten images of six shapes; every pixel is the number of its record."""
    examples = [{"image": np.full((i % 3 + 1, i % 2 + 2), i, np.uint8), "id": i} for i in range(10)]
    return write_split(tmp_path_factory.mktemp("images") / "cache", examples, IMAGES)


def test_padded_rows_of_a_packed_batch_have_segment_0_and_position_0(document_split):
    plan = pack(document_split, sequence_length=64)

    batch = list(Loader(plan, batch_size=len(plan) - 1, last="pad", pad_value=7))[-1]

    assert batch["valid"].tolist() == [True] + [False] * (len(plan) - 2)
    assert (batch["tokens"][1:] == 7).all()
    assert not batch["segment_ids"][1:].any()
    assert not batch["positions"][1:].any()


def test_padded_rows_of_a_padded_split_have_segment_0_and_position_0(labelled):
    rows = PaddedSplit(split=labelled, sequence_lengths={"tokens": 6})

    batch = list(Loader(rows, batch_size=4, last="pad", pad_value=7))[-1]

    assert (batch["tokens"][1:] == 7).all()
    assert not batch["tokens_segment_ids"][1:].any()
    assert not batch["tokens_positions"][1:].any()


def test_rows_of_a_mixture_that_are_widened_have_segment_0_and_position_0_there(document_split, other_split):
    sources = [PaddedSplit(split=split, sequence_lengths={"tokens": None}) for split in (document_split, other_split)]
    loader = Loader(Mixture([(source, 1) for source in sources], exhausted="drop"), batch_size=8, pad_value=-7)

    for batch in loader:
        padding = batch["tokens"] == -7
        assert padding.any()
        assert not batch["tokens_segment_ids"][padding].any()
        assert not batch["tokens_positions"][padding].any()


def test_rows_of_padding_have_no_shape(images):
    batch = list(Loader(images, batch_size=4, ragged="values", last="pad", pad_value=3))[-1]

    assert batch["valid"].tolist() == [True, True, False, False]
    assert batch["image/shape"][2:].tolist() == [[0, 0], [0, 0]]
    assert batch["image/lengths"][2:].tolist() == [0, 0]


def test_a_pad_value_for_all_goes_to_ragged_features_only(labelled):
    batch = list(Loader(labelled, batch_size=4, last="pad", pad_value=-100))[-1]

    assert (batch["tokens"][1:] == -100).all()
    assert batch["label"].tolist() == [9, 0, 0, 0]
    assert batch["flag"].tolist() == [True, False, False, False]
    assert batch["words"].shape == (4, 0)
    assert batch["blob"].tolist() == [b"x", b"", b"", b""]


def test_a_pad_value_by_name_goes_to_the_feature_it_names(labelled):
    batch = list(Loader(labelled, batch_size=4, last="pad", pad_value={"label": 255, "tokens": 0}))[-1]

    assert batch["label"].tolist() == [9, 255, 255, 255]


def test_bytes_are_padded_with_bytes_on_a_host_without_rows(labelled):
    loader = Loader(labelled, batch_size=4, last="pad", features=["blob"], host_index=3, host_count=4)

    assert list(loader)[-1]["blob"].tolist() == [b""]


def test_what_a_transform_gives_is_filled_as_the_feature_of_its_name(labelled):
    def transform(batch):
        return {"tokens": batch["tokens"].astype(np.int64), "sum": batch["tokens"].sum(1), "label": batch["label"]}

    batch = list(Loader(labelled, batch_size=4, last="pad", pad_value=-100, pad_to=5, transform=transform))[-1]

    assert batch["tokens"].dtype == np.int64
    assert (batch["tokens"][1:] == -100).all()
    assert batch["sum"][1:].tolist() == [0, 0, 0]
    assert batch["label"][1:].tolist() == [0, 0, 0]


@pytest.mark.parametrize("dtype", ["bool", "uint8", "int64", "float16", "float64", "bfloat16", "str", "bytes"])
@pytest.mark.parametrize("shape", [(), (2,), (None,)], ids=str)
def test_every_dtype_is_filled_after_a_transform(tmp_path, dtype, shape):
    spec = FeatureSpec(dtype, shape=shape)
    one = {"str": "a", "bytes": b"a"}.get(dtype, 1)
    value = one if not shape else np.full(2, one, object if spec.is_text else spec.numpy_dtype)
    split = write_split(tmp_path / "cache", [{"x": value}] * 3, ExampleSpec({"x": spec}), shards=1)

    loader = Loader(split, batch_size=2, last="pad", transform=lambda batch: {"x": batch["x"], "y": batch["x"]})

    last = list(loader)[-1]
    empty = {"str": "", "bytes": b""}.get(dtype, 0)
    for name in ("x", "y"):
        assert last[name].dtype == spec.numpy_dtype
        assert last[name].reshape(2, -1).tolist() == [[one] * (2 if shape else 1), [empty] * (2 if shape else 1)]


def test_a_host_without_rows_gets_what_the_transform_makes_of_rows(labelled):
    def transform(batch):
        return {
            "words": np.array([f"{label}".encode() for label in batch["label"]], object),
            "twice": np.array([2 * int(one) for one in batch["label"]]),
        }

    def last_of(host, last):
        return list(Loader(labelled, batch_size=4, last=last, transform=transform, host_index=host, host_count=2))[-1]

    assert last_of(1, "partial")["twice"].dtype == last_of(0, "pad")["twice"].dtype == np.int64
    padded = last_of(1, "pad")
    assert padded["twice"].dtype == np.int64 and padded["twice"].tolist() == [0, 0]
    assert padded["words"].tolist() == [b"", b""]


@pytest.mark.parametrize(
    ("dtype", "value"),
    [
        ("float32", 2**24 + 1),
        ("float64", 2**53 + 1),
        ("bfloat16", 257),
        ("bfloat16", 3.4e38),
        ("float32", 10**400),
        ("int64", 2.0**63),
    ],
)
def test_a_pad_value_that_would_become_another_number_is_refused(tmp_path, dtype, value):
    spec = ExampleSpec({"x": FeatureSpec(dtype, shape=(None,))})
    split = write_split(tmp_path / "cache", [{"x": [1, 2]}, {"x": [1]}], spec)

    with pytest.raises(LoaderError, match=f"pad value .* of feature 'x' does not fit its dtype {dtype}"):
        Loader(split, batch_size=2, ragged="pad", pad_value=value)
    with pytest.raises(SpecError, match=rf"'x': expected a pad_value that is exact in {dtype}, got .*Choose a number"):
        split.gather([0, 1], ragged="pad", pad_value=value)


def test_a_float_as_pad_value_is_rounded_and_an_int_is_exact(tmp_path):
    spec = ExampleSpec({"x": FeatureSpec("bfloat16", shape=(None,)), "h": FeatureSpec("uint64", shape=(None,))})
    split = write_split(tmp_path / "cache", [{"x": [1, 2], "h": [1, 2]}, {"x": [1], "h": [2**63 + 1]}], spec)
    pad_value = {"x": np.float64(0.1), "h": 2**63 + 3}

    found = split.gather([0, 1], ragged="pad", pad_value=pad_value)
    (batch,) = Loader(split, batch_size=2, epochs=1, shuffle=False, ragged="pad", pad_value=pad_value)

    for one in (found, batch):
        assert one["x"].astype(float).tolist() == [[1, 2], [1, 0.10009765625]]
        assert one["h"].tolist() == [[1, 2], [2**63 + 1, 2**63 + 3]]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        pytest.param(
            {"pad_value": {"flag": -100}}, "pad value -100 of feature 'flag' does not fit its dtype bool", id="flag"
        ),
        pytest.param(
            {"pad_value": 2**40}, f"pad value {2**40} of feature 'tokens' does not fit its dtype int32", id="all"
        ),
        pytest.param({"pad_value": "x"}, "pad value of feature 'tokens' should be a number, got 'x'", id="text"),
        pytest.param({"pad_value": None}, "pad value of feature 'tokens' should be a number, got None", id="none"),
        pytest.param(
            {"pad_value": -1, "last": "pad", "transform": lambda batch: {"tokens": batch["tokens"].astype(np.uint8)}},
            "pad value -1 of feature 'tokens' does not fit its dtype uint8",
            id="transformed",
        ),
    ],
)
def test_a_pad_value_that_does_not_fit_is_refused_at_construction(labelled, options, words):
    with pytest.raises(LoaderError, match=words):
        Loader(labelled, batch_size=4, **options)


def test_images_of_a_mixture_come_as_values_row_by_row(images):
    mixture = Mixture([(images, 2), (images, 1)], exhausted="drop")

    for batch in Loader(mixture, batch_size=4, ragged="values", last="partial"):
        ends = np.cumsum(batch["image/shape"].prod(axis=1))
        rows = np.split(batch["image"], ends)[:-1]
        assert [set(row.tolist()) for row in rows] == [{number} for number in batch["id"].tolist()]


def test_texts_of_sources_of_other_widths_are_padded_with_empty_ones(tmp_path):
    spec = ExampleSpec({"words": FeatureSpec("str", shape=(None,)), "marks": FeatureSpec("bytes", shape=(None,))})
    sources = [
        write_split(
            tmp_path / str(width), [{"words": ["a"] * width, "marks": [b"b"] * width}] * 4, spec, name=f"width{width}"
        )
        for width in (1, 3)
    ]

    batch = next(iter(Loader(Mixture([(split, 1) for split in sources], exhausted="drop"), batch_size=2)))

    assert sorted(batch["words"].tolist()) == [["a", "", ""], ["a", "a", "a"]]
    assert sorted(batch["marks"].tolist()) == [[b"b", b"", b""], [b"b", b"b", b"b"]]


def test_packed_texts_are_padded_with_empty_ones(tmp_path):
    spec = ExampleSpec({"words": FeatureSpec("str", shape=(None,))})
    split = write_split(tmp_path / "cache", [{"words": ["a", "b", "c"]}], spec, shards=1)

    batch = next(iter(Loader(pack(split, sequence_length=5), batch_size=1)))

    assert batch["words"].tolist() == [["a", "b", "c", "", ""]]
