"""Stages that turn MIDI files into melodies, as Magenta's pipelines do it: quantise, extract melodies, encode."""

from __future__ import annotations

import dataclasses
import io
from collections.abc import Sequence

import numpy as np
import pretty_midi

from beam_pipes.format.messages import SequenceExample
from beam_pipes.sources import FileContent
from beam_pipes.typed import Counter, Histogram, Pipeline, make_sequence_example
from transforms.melody import NUM_CLASSES, Note, PolyphonicMelodyError, class_of, melodies_of


@dataclasses.dataclass(frozen=True, kw_only=True)
class QuantizedSequence:
    """The notes of a piece on a grid of steps, sorted; a track for each instrument that plays pitches."""

    piece: str
    tracks: Sequence[Sequence[Note]]
    steps_per_bar: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class MonophonicMelody:
    """A melody of a piece: one event per step."""

    piece: str
    events: Sequence[int]


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Quantizer(Pipeline):
    """Puts the notes of a MIDI file on a grid of `steps_per_quarter` steps per quarter note."""

    input_type = FileContent
    output_type = QuantizedSequence
    steps_per_quarter: int = 4

    def transform(self, file: FileContent) -> list[QuantizedSequence]:
        midi = pretty_midi.PrettyMIDI(io.BytesIO(file.content))
        meters = {(change.numerator, change.denominator) for change in midi.time_signature_changes} or {(4, 4)}
        if len(meters) > 1:
            return self.drop("multiple_time_signatures")
        numerator, denominator = meters.pop()

        def step(seconds: float) -> int:
            return round(midi.time_to_tick(seconds) * self.steps_per_quarter / midi.resolution)

        tracks = [
            sorted((step(note.start), max(step(note.start) + 1, step(note.end)), note.pitch) for note in one.notes)
            for one in midi.instruments
            if not one.is_drum
        ]
        steps_per_bar = self.steps_per_quarter * 4 * numerator // denominator
        return [QuantizedSequence(piece=file.path, tracks=tracks, steps_per_bar=steps_per_bar)]


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class MonophonicMelodyExtractor(Pipeline):
    """The melodies of a piece that are at least `min_bars` long and use at least `min_unique_pitches`."""

    input_type = QuantizedSequence
    output_type = MonophonicMelody
    min_bars: int = 7
    min_unique_pitches: int = 5
    gap_bars: float = 1.0

    def transform(self, sequence: QuantizedSequence) -> list[MonophonicMelody]:
        polyphonic = Counter("polyphonic_tracks_discarded")
        short, few = Counter("melodies_discarded_too_short"), Counter("melodies_discarded_too_few_pitches")
        lengths = Histogram("melody_lengths_in_bars", [0, 1, self.min_bars, 10, 20, 30, 40, 50, 100, 200, 500])
        self._set_stats([polyphonic, short, few, lengths])
        bar, kept = sequence.steps_per_bar, []
        for notes in sequence.tracks:
            try:
                found = list(melodies_of(notes, steps_per_bar=bar, gap_steps=round(self.gap_bars * bar)))
            except PolyphonicMelodyError:
                polyphonic.increment()
                continue
            for events in found:
                lengths.increment(len(events) / bar)
                if len(events) < self.min_bars * bar:
                    short.increment()
                elif len({event for event in events if event >= 0}) < self.min_unique_pitches:
                    few.increment()
                else:
                    kept.append(MonophonicMelody(piece=sequence.piece, events=events))
        return kept or self.drop("no_melody")


class EncoderPipeline(Pipeline):
    """A melody as training data: at each step the event as a one-hot vector, and the next event's class."""

    input_type = MonophonicMelody
    output_type = SequenceExample

    def transform(self, melody: MonophonicMelody) -> list[SequenceExample]:
        classes = [class_of(event) for event in melody.events]
        example = make_sequence_example(np.eye(NUM_CLASSES)[classes[:-1]].tolist(), classes[1:])
        example.context.feature["piece"].bytes_list.value.append(melody.piece.encode())
        return [example]


def piece_of(example: SequenceExample) -> bytes:
    """The piece that a melody is from: all melodies of a piece go into one partition."""
    return example.context.feature["piece"].bytes_list.value[0]
