"""The melodies example, end to end on MIDI files that it composes."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from beam_pipes import Cache
from beam_pipes.engine.statistics import Histogram
from beam_pipes.format.messages import SequenceExample
from beam_pipes.runners import LocalOptions, build
from beam_pipes.sources import FileContent
from examples import melodies, melody_batches, midi_corpus
from transforms import melody, midi

NO, OFF = melody.NO_EVENT, melody.NOTE_OFF


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return midi_corpus.write_pieces(tmp_path_factory.mktemp("midi"), num_pieces=40)


@pytest.fixture(scope="module")
def built(corpus: Path, tmp_path_factory: pytest.TempPathFactory):
    path = tmp_path_factory.mktemp("melodies") / "cache"
    return build(melodies.declaration(str(corpus)), path, options=LocalOptions(workers=1))


def statistics(built) -> dict[str, str]:
    return {statistic.name: str(statistic) for statistic in built.account.statistics()}


def test_the_same_seed_composes_the_same_files(corpus: Path, tmp_path: Path) -> None:
    again = midi_corpus.write_pieces(tmp_path / "again", num_pieces=3)
    other = midi_corpus.write_pieces(tmp_path / "other", num_pieces=3, seed=1)

    for path in again.iterdir():
        assert (corpus / path.name).read_bytes() == path.read_bytes() != (other / path.name).read_bytes()


@pytest.mark.parametrize(
    ("notes", "found"),
    [
        pytest.param([], [], id="no notes"),
        pytest.param([(0, 2, 60), (2, 3, 62)], [[60, NO, 62, OFF]], id="one after the other"),
        pytest.param([(0, 1, 60), (3, 4, 62)], [[60, OFF, NO, 62, OFF]], id="a rest"),
        pytest.param([(0, 9, 60), (2, 3, 62)], [[60, NO, 62, OFF]], id="the next note ends one that sounds"),
        pytest.param([(6, 7, 60)], [[NO, NO, 60, OFF]], id="a melody begins with its bar"),
        pytest.param([(0, 1, 60), (5, 6, 62)], [[60, OFF], [NO, 62, OFF]], id="a gap of a bar"),
    ],
)
def test_melodies_of_a_track(notes: list[melody.Note], found: list[list[int]]) -> None:
    assert found == list(melody.melodies_of(notes, steps_per_bar=4, gap_steps=4))


def test_two_notes_at_once_are_no_melody() -> None:
    with pytest.raises(melody.PolyphonicMelodyError, match="^two notes begin at step 4$"):
        list(melody.melodies_of([(0, 1, 60), (4, 6, 60), (4, 5, 64)], steps_per_bar=4, gap_steps=8))


@given(st.lists(st.tuples(st.integers(1, 5), st.integers(1, 4), st.integers(30, 100)), max_size=12))
def test_every_note_of_a_track_is_in_one_melody(steps: list[tuple[int, int, int]]) -> None:
    notes, at = [], 0
    for wait, length, pitch in steps:
        at += wait
        notes.append((at, at + length, pitch))

    found = list(melody.melodies_of(notes, steps_per_bar=4, gap_steps=3))

    assert [pitch for _, _, pitch in notes] == [event for events in found for event in events if event >= 0]
    assert all(OFF == events[-1] for events in found)


@given(st.integers(0, 127))
def test_pitches_out_of_range_keep_their_name(pitch: int) -> None:
    encoded = melody.class_of(pitch) - 2 + melody.LOWEST

    assert melody.LOWEST <= encoded <= melody.HIGHEST
    assert 0 == (encoded - pitch) % 12
    assert encoded == pitch or not melody.LOWEST <= pitch <= melody.HIGHEST


def test_players_that_are_not_on_time_are_put_on_the_grid(corpus: Path) -> None:
    path = corpus / "piece-000.mid"

    (sequence,) = midi.Quantizer(steps_per_quarter=4).transform(FileContent(path.name, path.read_bytes()))

    flute, piano = sequence.tracks  # drums have no pitches
    assert 16 == sequence.steps_per_bar
    assert {0} == {start % 16 for start, _, _ in piano}
    assert all(start < end for start, end, _ in [*flute, *piano])


def test_what_becomes_of_every_piece_is_counted(built) -> None:
    units = built.account.units

    assert (40, 4) == (built.account.read, built.account.dead)
    assert {"multiple_time_signatures": 4} == units["Quantizer"].dropped
    assert {"no_melody": 8} == units["MonophonicMelodyExtractor"].dropped
    found = statistics(built)
    prefix = "Melodies_MonophonicMelodyExtractor_"
    assert f"{prefix}polyphonic_tracks_discarded: 32" == found[f"{prefix}polyphonic_tracks_discarded"]
    short = int(found[f"{prefix}melodies_discarded_too_short"].split(": ")[1])
    few = int(found[f"{prefix}melodies_discarded_too_few_pitches"].split(": ")[1])
    assert short >= 4 and few >= 4
    (bars,) = [one for one in built.account.statistics() if one.name == f"{prefix}melody_lengths_in_bars"]
    assert isinstance(bars, Histogram)
    assert built.account.written + short + few == sum(bars.counters.values())


def test_files_that_are_no_midi_are_kept_as_dead_letters(built, corpus: Path) -> None:
    letters = list(Cache.open(built.path).dead_letters())

    assert ["piece-009.mid", "piece-019.mid", "piece-029.mid", "piece-039.mid"] == [one.source for one in letters]
    assert (corpus / "piece-009.mid").read_bytes() == letters[0].record
    assert {"Quantizer"} == {one.stage for one in letters}


def test_no_piece_is_in_both_partitions(built) -> None:
    cache = Cache.open(built.path, proto=SequenceExample)
    pieces = {split: {midi.piece_of(example) for example in cache[split]} for split in cache.splits}

    assert {"eval_melodies", "training_melodies"} == pieces.keys()
    assert pieces["eval_melodies"] and not pieces["eval_melodies"] & pieces["training_melodies"]
    assert 24 == sum(map(len, pieces.values()))


def test_an_example_holds_each_event_and_the_next_one(built) -> None:
    example = Cache.open(built.path, proto=SequenceExample)["training_melodies"][0]

    inputs, labels = melody_batches.as_arrays(example)

    assert (len(labels), melody.NUM_CLASSES) == inputs.shape
    assert {1.0} == set(inputs.sum(axis=1))
    assert inputs.argmax(axis=1)[1:].tolist() == labels[:-1].tolist()


def test_tensorflow_reads_the_records(built) -> None:
    import tensorflow as tf

    split = Cache.open(built.path, proto=SequenceExample)["training_melodies"]
    features = {"inputs": tf.io.FixedLenSequenceFeature([38], tf.float32), "labels": tf.io.VarLenFeature(tf.int64)}

    _, found = tf.io.parse_single_sequence_example(split.record_bytes(0), sequence_features=features)

    inputs, labels = melody_batches.as_arrays(split[0])
    np.testing.assert_array_equal(inputs, found["inputs"].numpy())
    np.testing.assert_array_equal(labels, found["labels"].values.numpy())


def test_batches_hold_every_melody_padded(built) -> None:
    loader = melody_batches.create_dataloader(built.path, batch_size=8)
    split = Cache.open(built.path, proto=SequenceExample)["training_melodies"]

    batches = list(loader)

    steps = sum(len(melody_batches.as_arrays(example)[1]) for example in split)
    assert steps == sum(int((labels >= 0).sum()) for _, labels in batches)
    for inputs, labels in batches:
        assert (*labels.shape, melody.NUM_CLASSES) == inputs.shape
        assert np.array_equal(inputs.sum(axis=2) == 1, labels >= 0)


def test_the_command_lines(tmp_path: Path, built, capsys: pytest.CaptureFixture[str]) -> None:
    midi_corpus.main(["--to", str(tmp_path / "midi"), "--pieces", "2"])
    melody_batches.main(built.path)

    printed = capsys.readouterr().out
    assert printed.startswith("2 MIDI files lie in ")
    assert "melody_lengths_in_bars:\n  [" in printed
    assert "piece-009.mid: Quantizer failed with EOFError" in printed
    assert re.search(r"inputs \(8, \d+, 38\) float32, labels \(8, \d+\) int64", printed)
