"""Where the sequences of a split of steps begin: read from the features that name them, once for a large snapshot.

    episode  4 4 4 7 7 9    →  [0, 3, 5]

What was found of a snapshot of more than a million steps is kept in its directory, 8 bytes for a sequence, and read by
the next run in place of the records. A file that is damaged or of other features is not used; where nothing can be
written, and in a signed snapshot, whose signature covers all that is read, every run reads the records.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Mapping, Sequence

import google_crc32c
import numpy as np

from beam_pipes.cache.signature import SIGNATURE
from beam_pipes.cache.split import Split
from beam_pipes.errors import BeamPipesError, LoaderError
from beam_pipes.format.dtypes import Array
from beam_pipes.loader.order import Indices
from beam_pipes.publication.publish import snapshot_directory
from beam_pipes.storage.checked_json import canonical_json
from beam_pipes.storage.local import storage_for

# Records whose sequence is looked up at once: 8 MB for a number. Fewer are read in less time than a file is written.
_AT_ONCE = 1 << 20


def first_steps(split: Split, keys: Sequence[str], step: str | None) -> Indices:
    """The first record of each run of records with equal values of the features `keys`.

    Raises `LoaderError` for a sequence that begins twice or has gaps: `step` does not rise by one.
    """
    # A column beside the shards, and what a decoder makes of messages, have no name in the manifest; a choice is small.
    if type(split) is not Split or split.choice is not None or split.kind != "example" or len(split) <= _AT_ONCE:
        return _read(split, keys, step)
    key = canonical_json([split.manifest_id, split.name, len(split), [*keys], step])
    storage = storage_for(split.path)
    directory = snapshot_directory(split.path, split.snapshot)
    if storage.exists(f"{directory}/{SIGNATURE}"):
        return _read(split, keys, step)
    path = f"{directory}/first-steps-{hashlib.sha256(key).hexdigest()[:16]}"
    with contextlib.suppress(BeamPipesError, OSError):
        data, crc32c = (stored := storage.read_bytes(path))[:-4], stored[-4:]
        if len(data) % 8 == 0 and google_crc32c.extend(google_crc32c.value(key), data).to_bytes(4, "little") == crc32c:
            return np.frombuffer(data, "<i8").astype(np.int64)
    firsts = _read(split, keys, step)
    data = firsts.astype("<i8").tobytes()
    with contextlib.suppress(BeamPipesError, OSError):  # whoever may not write there reads the records each time
        storage.replace(path, data + google_crc32c.extend(google_crc32c.value(key), data).to_bytes(4, "little"))
    return firsts


def _read(split: Split, keys: Sequence[str], step: str | None) -> Indices:
    total = len(split)
    parts = []
    names: dict[str, list[Array]] = {name: [] for name in keys}
    for begin in range(0, total, _AT_ONCE):
        # One record from before, with which the first is compared.
        first, last = max(0, begin - 1), min(total, begin + _AT_ONCE)
        values = {name: split.stored(name, first, last) for name in keys}
        changes = np.zeros(last - first - 1, bool)
        for each in values.values():
            changes |= np.asarray(each[1:] != each[:-1], bool)
        starts = np.flatnonzero(changes) + 1 if begin else np.concatenate([[0], np.flatnonzero(changes) + 1])
        for name, each in values.items():
            names[name].append(each[starts])
        parts.append(starts + first)
        if step is not None:
            counted = split.stored(step, first, last)
            rows = 1 + np.flatnonzero(~changes & (np.diff(counted.astype(np.int64)) != 1))
            _refuse_gap(split, keys, rows + first, f"{step!r} does not rise by one")
        if split.choice is not None:
            rows = 1 + np.flatnonzero(~changes & (np.diff(split.choice.rows[first:last].astype(np.int64)) != 1))
            _refuse_gap(split, keys, rows + first, f"{split!r} leaves out steps")
    firsts: Indices = np.concatenate([np.empty(0, np.int64), *parts]).astype(np.int64)
    _check_in_one_piece(split, firsts, {name: np.concatenate(each) for name, each in names.items() if each})
    return firsts


def _refuse_gap(split: Split, keys: Sequence[str], records: Array, why: str) -> None:
    if len(records):
        record = int(records[0])
        named = _named({name: split.stored(name, record, record + 1) for name in keys}, 0)
        raise LoaderError(
            f"steps are missing in the sequence {named}: between record {record - 1} and record {record}, {why}. A "
            "window would cross the gap unseen. Choose whole sequences in split.where(…), split data by sequence, and "
            "leave out single steps in a stage that renumbers the others.",
            record=record,
        )


def _named(names: Mapping[str, Array], sequence: int) -> str:
    return ", ".join(f"{name}={values[sequence : sequence + 1].tolist()[0]!r}" for name, values in names.items())


def _check_in_one_piece(split: Split, firsts: Indices, names: Mapping[str, Array]) -> None:
    """Raises `LoaderError` if a sequence begins twice."""
    if not len(firsts):
        return
    codes = np.zeros(len(firsts), np.int64)
    for values in names.values():
        found, numbers = np.unique(values, return_inverse=True)
        # Renumbers after each feature: their product could be too large.
        codes = np.unique(codes * len(found) + numbers.reshape(-1), return_inverse=True)[1].reshape(-1)
    order = np.argsort(codes, kind="stable")
    again = np.flatnonzero(codes[order][1:] == codes[order][:-1])
    if len(again):
        earlier, later = int(firsts[order[again[0]]]), int(firsts[order[again[0] + 1]])
        named = _named(names, int(order[again[0]]))
        raise LoaderError(
            f"the sequence {named} begins at record {earlier} of split {split.name!r} and again at record "
            f"{later}: the steps of a sequence have to follow each other. Name all features that tell sequences apart, "
            'by=["file", "episode"], or build the cache from an input that is sorted by them.',
            record=later,
        )
