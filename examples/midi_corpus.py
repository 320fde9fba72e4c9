"""MIDI files to try `examples.melodies` on: a band that improvises, with all that melody extraction has to sort out.

python -m examples.midi_corpus --to .demo/midi
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

import numpy as np
import pretty_midi

MAJOR = (0, 2, 4, 5, 7, 9, 11)
BEATS_PER_BAR = 4
# What a number of a piece, modulo ten, stands for; all others are plain pieces.
SHORT, DRONE, TWO_METERS, BROKEN = 3, 5, 7, 9


def write_pieces(root: str | os.PathLike[str], num_pieces: int = 40, *, seed: int = 0) -> Path:
    """Writes `piece-000.mid` and so on, and returns their directory; the same seed gives the same files.

    Of ten pieces one is too short, one has a tune of three pitches, one changes its meter, and one file is cut short.
    Players are not on time: each note is up to a hundredth of a second early or late.
    """
    root = Path(root)
    root.mkdir(parents=True, exist_ok=True)
    for number in range(num_pieces):
        path, kind = root / f"piece-{number:03d}.mid", number % 10
        compose(np.random.default_rng([seed, number]), kind).write(str(path))
        if kind == BROKEN:
            path.write_bytes(path.read_bytes()[:100])
    return root


def compose(random: np.random.Generator, kind: int) -> pretty_midi.PrettyMIDI:
    """One piece: a flute that plays a tune, a piano that plays chords, and drums."""
    tempo = float(random.integers(80, 140))
    beat = 60.0 / tempo
    bars = int(random.integers(2, 5) if kind == SHORT else random.integers(8, 20))
    key = int(random.integers(55, 67))
    piece = pretty_midi.PrettyMIDI(initial_tempo=tempo)
    piece.time_signature_changes.append(pretty_midi.TimeSignature(BEATS_PER_BAR, 4, 0.0))
    if kind == TWO_METERS:
        piece.time_signature_changes.append(pretty_midi.TimeSignature(3, 4, 2 * BEATS_PER_BAR * beat))
    flute, piano = pretty_midi.Instrument(program=73), pretty_midi.Instrument(program=0)
    drums = pretty_midi.Instrument(program=0, is_drum=True)

    def play(instrument: pretty_midi.Instrument, pitch: int, start: float, beats: float) -> None:
        begin = max(0.0, start * beat + random.uniform(-0.01, 0.01))
        instrument.notes.append(pretty_midi.Note(90, pitch, begin, (start + 0.9 * beats) * beat))

    at, degree = 0.0, 0
    while at < bars * BEATS_PER_BAR:
        beats = float(random.choice([0.25, 0.5, 0.5, 1.0, 1.0, 2.0]))
        degree = int(np.clip(degree + random.integers(-2, 3), *((0, 2) if kind == DRONE else (-5, 9))))
        if random.random() > 0.1:  # else a rest
            play(flute, key + 12 * (degree // len(MAJOR)) + MAJOR[degree % len(MAJOR)], at, beats)
        at += beats
    for bar in range(bars):
        for third in (0, 4, 7):
            play(piano, key - 12 + third, bar * BEATS_PER_BAR, BEATS_PER_BAR)
        for number in range(BEATS_PER_BAR):
            play(drums, 36, bar * BEATS_PER_BAR + number, 0.25)
    piece.instruments += [flute, piano, drums]
    return piece


def main(arguments: list[str] | None = None) -> None:
    """Writes the files."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--to", default=".demo/midi", metavar="DIR", help="where they are written [.demo/midi]")
    parser.add_argument("--pieces", type=int, default=40, help="how many [40]")
    options = parser.parse_args(arguments)
    root = write_pieces(options.to, options.pieces)
    print(f"{options.pieces} MIDI files lie in {root}")


if __name__ == "__main__":
    main()
