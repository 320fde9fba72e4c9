"""The pipelines that Magenta calls common: `RandomPartition`, and melodies out of notes.

`RandomPartition`: each input goes to one of several outputs, at random but always to the same one.

`Quantizer` and `MonophonicMelodyExtractor`, over the NoteSequences of note-seq:

    NoteSequence ──Quantizer──► NoteSequence on a grid of steps ──MonophonicMelodyExtractor──► Melody, Melody, …

The music is note-seq's own (`sequences_lib`, `melodies_lib`), which is Magenta's library of notes: extra `music`,
Python 3.11 and later. It is imported when the first of these stages is made.

Source: Magenta, `pipelines_common`; in Magenta 2 `note_sequence_pipelines` and `melody_pipelines` too.
"""

from __future__ import annotations

import bisect
import hashlib
import math
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from beam_pipes.engine.graph import brief
from beam_pipes.engine.records import current_context
from beam_pipes.engine.statistics import Counter, Histogram, plain_number
from beam_pipes.errors import DeclarationError
from beam_pipes.extras import require
from beam_pipes.format.spec import Record
from beam_pipes.sources.record_batch import content_of_value
from beam_pipes.typed.pipeline import Pipeline

if TYPE_CHECKING:
    import note_seq

_OF_NOTES = "a stage of your own over `note_seq.sequences_lib`"
#: Magenta's names that are not here → what to use. Messages are made from it, and pages.
ABSENT: dict[str, str] = {
    "NoteSequencePipeline": "a base class of two lines: pass `input_type` and `output_type`",
    "Splitter": _OF_NOTES,
    "StretchPipeline": _OF_NOTES,
    "SustainPipeline": _OF_NOTES,
    "TimeChangeSplitter": _OF_NOTES,
    "TranspositionPipeline": _OF_NOTES,
    "extract_melodies": "`MelodyExtractor` does it, without `search_start_step`, `max_steps_discard` and `pad_end`",
}


def fraction_of(key: bytes, *, seed: int) -> float:
    """The number from 0 to 1, and below 1, that is drawn for a key."""
    drawn = hashlib.blake2b(key, digest_size=8, salt=b"partition", key=str(seed).encode()).digest()
    return (int.from_bytes(drawn, "big") >> 11) / 2**53


class RandomPartition(Pipeline):
    """Sends each input to one of the named outputs with the given probabilities.

        RandomPartition(str, ['eval', 'train'], [0.1])       # the last takes the rest, as in the reference
        RandomPartition(str, ['train', 'eval', 'test'], [0.7, 0.2, 0.1])

    The choice is a function of the seeds (of the declaration and of this stage), the names of this stage and of its
    outputs, and the content of the record in its source, such as the bytes of its line; of a source of whole files
    (`Files`), the name of the file. So it is the same on every runner and in every run, wherever in a pipeline the
    partition stands, and in an analyzer too. Records keep their output when others are added, removed, or put into
    another order; a record and its duplicates go to the same output, as does everything that stages made of one
    record. If shares change, only those records move that no longer fit. Two partitions of one graph choose
    independently of each other, because they have different names.

    `key` makes the choice depend on (seed, name, key) instead, so that related records stay together:
    `key=lambda example: example['speaker']` never splits a speaker. It is also what keeps a record where it is when
    its content changes.

    Statistics: a counter for each output, `<name of the partition>_<output>_count`.

    Raises `DeclarationError` if names and probabilities do not match, or a key is not a str, bytes or int.

    Source: Magenta, `RandomPartition`; there the draw was unseeded.
    """

    def __init__(
        self,
        type_: type,
        partition_names: Sequence[str],
        partition_probabilities: Sequence[float],
        *,
        seed: int = 0,
        key: Callable[[Record], str | bytes | int] | None = None,
        name: str = "RandomPartition",
    ) -> None:
        if not isinstance(partition_probabilities, Iterable) or isinstance(partition_names, str):
            raise DeclarationError(
                f"{name}: expected a list of names and a list of probabilities, got {partition_names!r} and "
                f"{partition_probabilities!r}. Write [0.1] for the share of the first of two.",
                stage=name,
            )
        probabilities = list(partition_probabilities)
        names = list(partition_names)
        total = math.fsum(probabilities)
        if any(not 0 <= p <= 1 for p in probabilities):
            raise DeclarationError(
                f"{name}: probabilities lie between 0 and 1, got {probabilities}. Give each output its share.",
                stage=name,
            )
        if len(set(names)) != len(names) or not names:
            raise DeclarationError(
                f"{name}: partition names should be distinct and at least one, got {names}. Each names an output.",
                stage=name,
            )
        if len(probabilities) == len(names) - 1 and total <= 1 + 1e-9:
            probabilities.append(max(0.0, 1 - total))
        elif len(probabilities) != len(names) or abs(total - 1) > 1e-9:
            raise DeclarationError(
                f"{name}: expected {len(names)} probabilities that add up to 1, or {len(names) - 1} and the last "
                f"output takes the rest; got {list(partition_probabilities)} (sum {total:g}) for {names}.",
                stage=name,
            )
        super().__init__(input_type=type_, output_type=dict.fromkeys(names, type_), name=name)
        self.partition_names = names
        self.partition_probabilities = probabilities
        self.seed = seed
        self.key = key
        # Exact sums: adding up 0.7, 0.2 and 0.1 one by one would leave a gap below 1.
        self._bounds = [math.fsum(probabilities[: count + 1]) for count in range(len(names) - 1)]

    def transform(self, input_object: object) -> dict[str, list[object]]:
        context = current_context()
        assert context is not None  # set by whoever calls `transform`, see `Pipeline`
        if self.key is not None:
            name = self._drawn(self._key_of(input_object))
        elif context.direct:
            name = self.output_of(content_of_value(input_object))
        else:
            name = self.output_of(context.content, seed=context.seed)
        outputs: dict[str, list[object]] = {name: [] for name in self.partition_names}
        outputs[name].append(input_object)
        self._set_stats([Counter(f"{name}_count", 1)])
        return outputs

    def output_of(self, content: bytes, *, seed: int = 0) -> str:
        """The output of the records with this content (`RecordBatch.content`), in a declaration with this seed."""
        parts = [str(seed).encode(), *(name.encode() for name in (self.name, *self.partition_names)), content]
        return self._drawn(b"\0".join(parts))

    def _drawn(self, key: bytes) -> str:
        return self.partition_names[bisect.bisect_right(self._bounds, fraction_of(key, seed=self.seed))]

    def _key_of(self, input_object: object) -> bytes:
        assert self.key is not None
        key = plain_number(self.key(input_object))
        if not isinstance(key, str | bytes | int):
            raise DeclarationError(
                f"{self.name}: key should give a str, bytes or an int, got {brief(key)}. Return what names the group.",
                stage=self.name,
            )
        text = key if isinstance(key, bytes) else str(key).encode("utf-8", "surrogatepass")
        return self.name.encode() + b"\0" + text


class Quantizer(Pipeline):
    """Snaps the notes of a NoteSequence to a grid of time steps: a copy with `quantized_start_step` and so on.

        Quantizer(steps_per_quarter=4)    # relative to the tempo: 16 steps in a bar of 4/4
        Quantizer(steps_per_second=100)   # absolute

        a note of 0.1 s to 0.5 s at 120 quarters a minute, steps_per_quarter=4  →  steps 1 to 4

    Relative to the tempo, a sequence with several tempi or meters, or an invalid meter (0/4, 3/5), gives
    nothing; a counter says why: `sequences_discarded_because_multiple_tempos`, `…_multiple_time_signatures`,
    `…_bad_time_signature`.

    Raises `DeclarationError` unless exactly one of the two is given, and `MissingExtraError` without note-seq.
    """

    def __init__(
        self, steps_per_quarter: int | None = None, steps_per_second: int | None = None, name: str | None = None
    ) -> None:
        if (steps_per_quarter is None) == (steps_per_second is None):
            raise DeclarationError(
                f"Quantizer: expected either steps_per_quarter or steps_per_second, got {steps_per_quarter} and "
                f"{steps_per_second}. Pass steps_per_quarter=4 for melodies.",
                stage=name or "Quantizer",
            )
        sequence = require("note_seq", purpose="Quantizer").NoteSequence
        super().__init__(input_type=sequence, output_type=sequence, name=name)
        self.steps_per_quarter = steps_per_quarter
        self.steps_per_second = steps_per_second

    def transform(self, input_object: note_seq.NoteSequence) -> list[note_seq.NoteSequence]:
        sequences = require("note_seq.sequences_lib", purpose="Quantizer")
        if self.steps_per_quarter is None:
            return [sequences.quantize_note_sequence_absolute(input_object, self.steps_per_second)]
        try:
            return [sequences.quantize_note_sequence(input_object, self.steps_per_quarter)]
        except sequences.MultipleTimeSignatureError:
            reason = "multiple_time_signatures"
        except sequences.MultipleTempoError:
            reason = "multiple_tempos"
        except sequences.BadTimeSignatureError:
            reason = "bad_time_signature"
        self._set_stats([Counter(f"sequences_discarded_because_{reason}", 1)])
        return self.drop(reason)  # type: ignore[no-any-return]


class MonophonicMelodyExtractor(Pipeline):
    """The melodies of a quantized NoteSequence, as `note_seq.Melody`: of each instrument, one after the other.

        MonophonicMelodyExtractor(min_bars=7, min_unique_pitches=5, gap_bars=1.0, ignore_polyphonic_notes=False)

        notes C4 on steps 0 to 2 and D4 on steps 2 to 4  →  Melody of the events [60, -2, 62, -2]

    Args:
        min_bars: shorter melodies are left out. 7, as in the reference.
        max_steps: longer ones are cut off there; None keeps them whole. 512, which is 32 bars of 16 steps.
        min_unique_pitches: melodies of fewer pitches, octaves being the same, are left out.
        gap_bars: the number of silent bars that end a melody; the next note begins another one.
        ignore_polyphonic_notes: take the highest of notes that begin together; otherwise the rest of the instrument is
            left out.
        filter_drums: leaves out notes of drums.

    Statistics: counters `polyphonic_tracks_discarded`, `melodies_discarded_too_short`,
    `melodies_discarded_too_few_pitches`, `melodies_discarded_too_long` (always 0, as in the reference) and
    `melodies_truncated`, the histogram `melody_lengths_in_bars`; and `non_integer_steps_per_bar` for a sequence whose
    bars are not a whole number of steps, which gives nothing.

    Raises `MissingExtraError` without note-seq.
    """

    def __init__(
        self,
        min_bars: float = 7,
        max_steps: int | None = 512,
        min_unique_pitches: int = 5,
        gap_bars: float = 1.0,
        ignore_polyphonic_notes: bool = False,
        filter_drums: bool = True,
        name: str | None = None,
    ) -> None:
        note_seq = require("note_seq", purpose=type(self).__name__)
        super().__init__(input_type=note_seq.NoteSequence, output_type=note_seq.Melody, name=name)
        self.min_bars = min_bars
        self.max_steps = max_steps
        self.min_unique_pitches = min_unique_pitches
        self.gap_bars = gap_bars
        self.ignore_polyphonic_notes = ignore_polyphonic_notes
        self.filter_drums = filter_drums

    def transform(self, input_object: note_seq.NoteSequence) -> list[note_seq.NoteSequence]:
        counters = {name: Counter(name) for name in _COUNTERS}
        near = self.min_bars
        lengths = Histogram("melody_lengths_in_bars", [*_BARS, near // 2, near, near + 1, near - 1])
        events = require("note_seq.events_lib", purpose=type(self).__name__)
        try:
            melodies = self._melodies(input_object, counters, lengths)
        except events.NonIntegerStepsPerBarError:
            self._set_stats([Counter("non_integer_steps_per_bar", 1)])
            return self.drop("non_integer_steps_per_bar")  # type: ignore[no-any-return]
        self._set_stats([*counters.values(), lengths])
        return melodies

    def _melodies(
        self, sequence: note_seq.NoteSequence, counters: dict[str, Counter], lengths: Histogram
    ) -> list[object]:
        note_seq = require("note_seq", purpose=type(self).__name__)
        steps_per_bar = int(note_seq.sequences_lib.steps_per_bar_in_quantized_sequence(sequence))
        kept = []
        for instrument in sorted({note.instrument for note in sequence.notes}):
            start = 0
            while True:
                melody = note_seq.Melody()
                try:
                    melody.from_quantized_sequence(
                        sequence,
                        instrument=instrument,
                        search_start_step=start,
                        gap_bars=self.gap_bars,
                        ignore_polyphonic_notes=self.ignore_polyphonic_notes,
                        filter_drums=self.filter_drums,
                    )
                except note_seq.PolyphonicMelodyError:
                    counters["polyphonic_tracks_discarded"].increment()
                    break
                if not len(melody):
                    break
                start = math.ceil(melody.end_step / steps_per_bar) * steps_per_bar  # the next bar
                reason = self._flaw(melody, counters)
                if reason is not None:
                    counters[reason].increment()
                    continue
                lengths.increment(len(melody) // melody.steps_per_bar)
                kept.append(melody)
        return kept

    def _flaw(self, melody: note_seq.Melody, counters: dict[str, Counter]) -> str | None:
        """The counter for why a melody is left out; cuts off one that is too long."""
        if len(melody) < melody.steps_per_bar * self.min_bars:
            return "melodies_discarded_too_short"
        if self.max_steps is not None and len(melody) > self.max_steps:
            melody.set_length(self.max_steps)
            counters["melodies_truncated"].increment()
        if np.count_nonzero(melody.get_note_histogram()) < self.min_unique_pitches:
            return "melodies_discarded_too_few_pitches"
        return None


class MelodyExtractor(MonophonicMelodyExtractor):
    """`MonophonicMelodyExtractor` under its name in Magenta 2, which its statistics have too."""


_COUNTERS = (
    "polyphonic_tracks_discarded",
    "melodies_discarded_too_short",
    "melodies_discarded_too_few_pitches",
    "melodies_discarded_too_long",
    "melodies_truncated",
)
_BARS = (0, 1, 10, 20, 30, 40, 50, 100, 200, 500)
