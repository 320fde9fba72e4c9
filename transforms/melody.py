"""A melody as events on a grid of steps, and the search for melodies in the notes of a track."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

NO_EVENT, NOTE_OFF = -2, -1  # a note (or silence) continues; a note ends
LOWEST, HIGHEST = 48, 83  # the pitches that are encoded, C3 to B5
NUM_CLASSES = HIGHEST - LOWEST + 3

Note = tuple[int, int, int]  # its first step, the step after its last, its pitch


class PolyphonicMelodyError(ValueError):
    """Two notes begin at once: there is no melody."""


def melodies_of(notes: Sequence[Note], *, steps_per_bar: int, gap_steps: int) -> Iterator[list[int]]:
    """The events of each melody in a track: pitches, `NOTE_OFF`, `NO_EVENT`.

    Notes (2, 4, 60) and (4, 5, 62) in bars of four steps → `[-2, -2, 60, -2, 62, -1]`

    `notes` are sorted. A melody begins with a bar, and ends after `gap_steps` of silence. A note that still sounds when
    the next one begins ends there. Raises `PolyphonicMelodyError`.
    """
    events: list[int] = []
    first = ended = 0
    for start, end, pitch in notes:
        if events and start - ended >= gap_steps:
            yield events
            events = []
        if not events:
            first = start - start % steps_per_bar
        place = start - first
        if place < len(events) and events[place] >= 0:
            raise PolyphonicMelodyError(f"two notes begin at step {start}")
        events = events[:place] + [NO_EVENT] * (place - len(events))
        events += [pitch] + [NO_EVENT] * (end - start - 1) + [NOTE_OFF]
        ended = end
    if events:
        yield events


def class_of(event: int) -> int:
    """The class of an event, below `NUM_CLASSES`: 0 and 1 for no event and note off, then the pitches.

    Pitches out of range are moved by octaves: 36 is encoded as 48 is.
    """
    if event < 0:
        return event + 2
    if event < LOWEST:
        event = LOWEST + (event - LOWEST) % 12
    elif event > HIGHEST:
        event = HIGHEST - 11 + (event - HIGHEST - 1) % 12
    return event - LOWEST + 2
