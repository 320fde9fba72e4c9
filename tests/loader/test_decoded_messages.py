"""Caches of messages are loaded: `decode` says how examples are made of them."""

from __future__ import annotations

import pickle
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from beam_pipes import Cache, FeatureSpec, Loader, build
from beam_pipes.cache import MessageFeatures, SequenceFeatures
from beam_pipes.errors import CacheError, CorruptRecordError, LoaderError, SpecError
from beam_pipes.format.messages import Example, SequenceExample
from beam_pipes.loader import Mixture, Windows, pack
from beam_pipes.sources import TextLines
from beam_pipes.typed import Pipeline, make_sequence_example

RECORDS = 50
LISTS = {"inputs": FeatureSpec("float32", shape=(None, 2)), "labels": FeatureSpec("int64", shape=(None,))}
MELODY = SequenceFeatures(LISTS, context={"piece": FeatureSpec("str"), "keys": FeatureSpec("int32", shape=(None,))})


def melody(number: int) -> SequenceExample:
    """Record n has 1 + n % 5 steps; its labels are n, n + 1, …"""
    steps = 1 + number % 5
    made = make_sequence_example([[step / 2, number] for step in range(steps)], range(number, number + steps))
    made.context.feature["piece"].bytes_list.value.append(f"piece {number}".encode())
    if number % 2:
        made.context.feature["keys"].int64_list.value.extend([number, -number])
    return made


class Melodies(Pipeline):
    input_type, output_type = str, SequenceExample

    def transform(self, input_object: str) -> list[Any]:
        return [melody(int(input_object))]


class Serialized(Pipeline):
    input_type, output_type = str, bytes

    def transform(self, input_object: str) -> list[Any]:
        return [melody(int(input_object)).SerializeToString()]


class Examples(Pipeline):
    """As other libraries write them: numbers in lists, tensors as bytes, nothing where a list is empty."""

    input_type, output_type = str, Example

    def transform(self, input_object: str) -> list[Any]:
        number, made = int(input_object), Example()
        feature = made.features.feature
        feature["id"].int64_list.value.append(number)
        feature["tensor"].bytes_list.value.append(np.arange(number, number + 3, dtype="<f8").tobytes())
        feature["words"].bytes_list.value.extend([b"to", b"be"][: number % 3])
        if number % 4:
            feature["scores"].float_list.value.extend([0.5] * (number % 4))
        return [made]


@pytest.fixture(scope="module")
def caches(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("caches")
    (root / "numbers.txt").write_text("".join(f"{number}\n" for number in range(RECORDS)))
    for stage in (Melodies(), Serialized(), Examples()):
        build(stage.name, TextLines(str(root / "numbers.txt")), [stage], to=root / stage.name)
    return root


def melodies(caches: Path, **options: Any) -> Loader:
    path = str(caches / "Melodies" / "train")
    return Loader(path, decode=MELODY, batch_size=8, seed=3, pad_value={"labels": -1}, **options)


def same(ours: list[dict[str, Any]], theirs: list[dict[str, Any]]) -> bool:
    return len(ours) == len(theirs) and all(
        one.keys() == other.keys() and all(np.array_equal(one[name], other[name]) for name in one)
        for one, other in zip(ours, theirs, strict=True)
    )


def test_an_epoch_is_every_melody_once_padded_to_the_longest_of_its_batch(caches: Path) -> None:
    batches = list(melodies(caches, last="partial"))

    pieces = [piece for batch in batches for piece in batch["piece"]]
    assert sorted(pieces) == sorted(f"piece {number}" for number in range(RECORDS)) != pieces
    for batch in batches:
        for row, piece in enumerate(batch["piece"]):
            number = int(piece.split()[1])
            steps = 1 + number % 5
            width = batch["labels"].shape[1]
            assert batch["labels"][row].tolist() == [*range(number, number + steps), *[-1] * (width - steps)]
            assert batch["inputs"][row, :steps].tolist() == [[step / 2, number] for step in range(steps)]
            assert not batch["inputs"][row, steps:].any()
            assert batch["keys"][row].tolist()[:2] in ([number, -number], [0, 0], [])
        assert batch["labels"].shape[1] == max(1 + int(piece.split()[1]) % 5 for piece in batch["piece"])
        assert (batch["inputs"].dtype, batch["labels"].dtype, batch["keys"].dtype) == (np.float32, np.int64, np.int32)


@pytest.mark.parametrize("workers", [0, 2])
def test_a_state_resumes_exactly(caches: Path, workers: int) -> None:
    whole = list(melodies(caches, epochs=3))
    loader = melodies(caches, epochs=3, workers=workers)
    begun = iter(loader)
    for _ in range(8):
        next(begun)
    state = loader.get_state()

    copied = pickle.loads(pickle.dumps(loader))
    restored = melodies(caches, epochs=3)
    restored.set_state(state)

    assert same(list(copied), whole[8:])
    assert same(list(restored), whole[8:])


def test_a_state_goes_from_one_way_of_decoding_to_another(caches: Path) -> None:
    loader = melodies(caches)
    next(iter(loader))
    labels = Loader(str(caches / "Melodies" / "train"), decode={"labels": LISTS["labels"]}, batch_size=8, seed=3)

    labels.restore(loader.state)

    assert set(next(iter(labels))) == {"labels"} and labels.position == 16


def test_hosts_get_slices_of_one_batch(caches: Path) -> None:
    whole = melodies(caches).batch_at(2)
    parts = [melodies(caches, host_index=host, host_count=2).batch_at(2) for host in range(2)]

    assert all(np.array_equal(np.concatenate([part[name] for part in parts]), whole[name]) for name in whole)


def test_pad_to_and_values(caches: Path) -> None:
    padded = next(iter(melodies(caches, pad_to={"labels": 9, "inputs": 9, "keys": 4})))
    values = melodies(caches, ragged="values").batch_at(0)

    assert (padded["inputs"].shape, padded["labels"].shape, padded["keys"].shape) == ((8, 9, 2), (8, 9), (8, 4))
    assert values["labels/lengths"].tolist() == (padded["labels"] >= 0).sum(axis=1).tolist()
    assert values["labels"].tolist() == padded["labels"][padded["labels"] >= 0].tolist()
    assert values["inputs"].shape == (len(values["labels"]), 2)


def test_a_decoded_split_is_packed_and_mixed(caches: Path) -> None:
    split = Cache.open(caches / "Melodies")["train"].decoded(LISTS)

    assert split.lengths("labels").tolist() == [1 + number % 5 for number in range(RECORDS)]
    assert split[7]["labels"].tolist() == [7, 8, 9]
    batch = next(iter(Loader(pack(split, sequence_length=16, feature="labels"), batch_size=2)))
    assert batch["labels"].shape == (2, 16)
    mixed = next(iter(Loader(Mixture([(split, 1), (split, 3)]), batch_size=4, epochs=None)))
    assert mixed["inputs"].shape[::2] == (4, 2)


def test_windows_of_a_decoded_split(caches: Path) -> None:
    split = Cache.open(caches / "Melodies")["train"].decoded(LISTS)
    windows = Windows(split, past=1, future=2, ends={"labels": "fill"})
    batch = next(iter(Loader(windows, batch_size=len(windows), shuffle=False, pad_value=-1)))

    assert len(windows) == sum(1 + number % 5 for number in range(RECORDS))
    # Record 1 has the labels 1 and 2; record 0 has one step.
    assert batch["labels"][:3].tolist() == [[-1, 0, -1], [-1, 1, 2], [1, 2, -1]]
    assert batch["inputs"][1].tolist() == [[0, 1], [0, 1], [0.5, 1]]


def test_bytes_of_messages_are_decoded_too(caches: Path) -> None:
    of_bytes = Loader(
        str(caches / "Serialized" / "train"), decode=MELODY, batch_size=8, seed=3, pad_value={"labels": -1}
    )

    assert same(list(of_bytes), list(melodies(caches)))


def test_examples_of_other_libraries(caches: Path) -> None:
    decode = {
        "id": FeatureSpec("int32", minimum=0, maximum=100),
        "tensor": FeatureSpec("float64", shape=(3,)),
        "words": FeatureSpec("str", shape=(None,)),
        "scores": FeatureSpec("float32", shape=(None,)),
    }
    batch = Loader(str(caches / "Examples" / "train"), decode=decode, batch_size=6, shuffle=False).batch_at(0)

    assert batch["id"].tolist() == list(range(6)) and batch["id"].dtype == np.int32
    assert batch["tensor"].tolist() == [[number, number + 1.0, number + 2.0] for number in range(6)]
    assert batch["words"].tolist() == [["", ""], ["to", ""], ["to", "be"]] * 2
    assert (batch["scores"] > 0).sum(axis=1).tolist() == [0, 1, 2, 3, 0, 1]


def steps_and_piece(message: SequenceExample) -> dict[str, Any]:
    return {
        "steps": len(message.feature_lists.feature_list["labels"].feature),
        "piece": message.context.feature["piece"].bytes_list.value[0].decode(),
    }


def test_any_message_is_decoded_by_a_function(caches: Path) -> None:
    decode = MessageFeatures(steps_and_piece, {"steps": FeatureSpec("uint8"), "piece": FeatureSpec("str")})
    loader = Loader(str(caches / "Melodies" / "train"), decode=decode, batch_size=5, shuffle=False)
    batch = pickle.loads(pickle.dumps(loader)).batch_at(1)

    assert batch["steps"].tolist() == [1, 2, 3, 4, 5] and batch["steps"].dtype == np.uint8
    assert batch["piece"].tolist() == [f"piece {number}" for number in range(5, 10)]


def uneven(steps: list[int]) -> bytes:
    return bytes(make_sequence_example([], [[7] * count for count in steps]).SerializeToString())


def test_steps_of_several_values() -> None:
    decoder = SequenceFeatures({"labels": FeatureSpec("int64", shape=(None, None))})

    assert decoder.decode(uneven([3, 3]), bytes)["labels"].tolist() == [[7, 7, 7], [7, 7, 7]]
    assert decoder.decode(uneven([]), bytes)["labels"].shape == (0, 0)
    message = (
        "feature 'labels': expected 3 values at each step (shape (None, None)), found 2 at step 1. Declare (None, "
        "None) where only records differ; where steps do, pad them with MessageFeatures(function, features)."
    )
    with pytest.raises(SpecError, match=f"^{re.escape(message)}$"):
        decoder.decode(uneven([3, 2]), bytes)


@pytest.mark.parametrize(
    ("decode", "message"),
    [
        pytest.param(
            {"label": LISTS["labels"]},
            "feature 'label': expected a feature list of this name, found ['inputs', 'labels'] (and in the context "
            "['keys', 'piece']). Declare what the record has.",
            id="no such list",
        ),
        pytest.param(
            SequenceFeatures({}, context={"composer": FeatureSpec("str")}),
            "feature 'composer': expected str of shape (), found no such feature among ['keys', 'piece']. Only one "
            "whose first dimension varies may be missing.",
            id="no such context",
        ),
        pytest.param(
            {"labels": FeatureSpec("float32", shape=(None,))},
            "feature 'labels': expected a float_list (float32), found a int64_list.",
            id="another list",
        ),
        pytest.param(
            {"labels": FeatureSpec("int64", shape=(None,), maximum=0)},
            "feature 'labels': expected values in the declared range [-9223372036854775808, 0], got 6.",
            id="out of range",
        ),
        pytest.param(
            MessageFeatures(lambda message: {}, {"steps": FeatureSpec("uint8")}),
            "expected the features ['steps'] of the function of MessageFeatures, got []. Return a dict of all",
            id="function of something else",
        ),
        pytest.param(
            MessageFeatures(lambda message: {"steps": 300}, {"steps": FeatureSpec("uint8")}),
            "feature 'steps': expected values that are exact in uint8, got 300",
            id="function of no exact value",
        ),
        pytest.param(
            MessageFeatures(lambda message: {"piece": b"x"}, {"piece": FeatureSpec("str")}),
            "feature 'piece': expected str of shape (), got bytes. Convert it.",
            id="function of another type",
        ),
    ],
)
def test_a_record_that_is_not_what_was_declared(caches: Path, decode: Any, message: str) -> None:
    with pytest.raises(SpecError, match=re.escape(message)):
        Cache.open(caches / "Melodies")["train"].decoded(decode)[3]


def test_what_is_declared_wrongly() -> None:
    for message, declare in {
        "feature 'a': expected it in the feature lists or in the context, got it in both": lambda: SequenceFeatures(
            {"a": LISTS["labels"]}, context={"a": FeatureSpec("str")}
        ),
        "feature 'a': expected a shape whose first dimension counts the steps, such as (None,) or (None, 38), got ()": (
            lambda: SequenceFeatures({"a": FeatureSpec("int64")})
        ),
        "feature 'a': expected a shape where at most the first dimension varies, got (None, None)": (
            lambda: SequenceFeatures({}, context={"a": FeatureSpec("int64", shape=(None, None))})
        ),
        "expected a function of a message that gives an example, got dict.": lambda: MessageFeatures(LISTS, LISTS),
    }.items():
        with pytest.raises(SpecError, match=re.escape(message)):
            declare()


def test_what_cannot_be_decoded(caches: Path, tmp_path: Path) -> None:
    build("texts", TextLines(str(caches / "numbers.txt")), [Texts()], to=tmp_path / "texts")
    split = Cache.open(caches / "Melodies")["train"]
    options: dict[str, Any] = {"decode": LISTS, "batch_size": 8}

    with pytest.raises(CacheError, match=re.escape("Say how to read some: Loader(…, decode=…) or split.decoded(…)")):
        Loader(split, batch_size=8)
    with pytest.raises(SpecError, match="holds examples, which need no decode. Leave it out"):
        Loader(tmp_path / "texts" / "train", **options)
    with pytest.raises(SpecError, match="the features are those of SequenceExample messages, and the records are"):
        Loader(caches / "Examples" / "train", **{**options, "decode": MELODY})
    with pytest.raises(LoaderError, match="decode is for one split of a cache, got Mixture. Decode before"):
        Loader(Mixture([(split.decoded(LISTS), 1)]), **options)
    with pytest.raises(
        CorruptRecordError, match="expected a serialized SequenceExample, got 3 bytes that do not parse"
    ):
        MELODY.decode(b"abc", bytes)


class Texts(Pipeline):
    input_type, output_type = str, dict

    def transform(self, input_object: str) -> list[Any]:
        return [{"text": input_object}]
