"""The corruption campaign: every file covered by a manifest, damaged in every way; `Cache.verify` must detect it."""

from __future__ import annotations

import dataclasses
import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from beam_pipes.cache import Cache
from beam_pipes.errors import CacheError
from beam_pipes.format.index import index_path

Damage = Callable[[bytes, random.Random], bytes]


def _flip_bit(data: bytes, rng: random.Random) -> bytes:
    position = rng.randrange(len(data))
    return data[:position] + bytes([data[position] ^ 1 << rng.randrange(8)]) + data[position + 1 :]


def _overwrite(data: bytes, rng: random.Random) -> bytes:
    start = rng.randrange(len(data))
    size = rng.randint(1, min(64, len(data) - start))
    return data[:start] + rng.randbytes(size) + data[start + size :]


def _zero(data: bytes, rng: random.Random) -> bytes:
    start = rng.randrange(len(data))
    size = rng.randint(1, min(512, len(data) - start))
    return data[:start] + bytes(size) + data[start + size :]


def _truncate(data: bytes, rng: random.Random) -> bytes:
    return data[: rng.randrange(len(data))]


def _append(data: bytes, rng: random.Random) -> bytes:
    return data + rng.randbytes(rng.randint(1, 64))


def _cut_out(data: bytes, rng: random.Random) -> bytes:
    start = rng.randrange(len(data))
    return data[:start] + data[start + rng.randint(1, 64) :]


def _repeat(data: bytes, rng: random.Random) -> bytes:
    start = rng.randrange(len(data))
    size = rng.randint(1, 64)
    return data[: start + size] + data[start:]


def _exchange(data: bytes, rng: random.Random) -> bytes:
    size = rng.randint(1, max(1, len(data) // 4))
    first = rng.randrange(len(data) - size + 1)
    second = rng.randrange(len(data) - size + 1)
    first, second = min(first, second), max(first, second)
    if second - first < size:
        return data
    return (
        data[:first]
        + data[second : second + size]
        + data[first + size : second]
        + data[first : first + size]
        + data[second + size :]
    )


DAMAGES: dict[str, Damage] = {
    "flip_bit": _flip_bit,
    "overwrite": _overwrite,
    "zero": _zero,
    "truncate": _truncate,
    "append": _append,
    "cut_out": _cut_out,
    "repeat": _repeat,
    "exchange": _exchange,
}


@dataclasses.dataclass(kw_only=True)
class CorruptionCounts:
    """`by_damage` and `by_kind` count the tries; undetected damage is described in `undetected`."""

    tried: int = 0
    by_damage: Counter[str] = dataclasses.field(default_factory=Counter)
    by_kind: Counter[str] = dataclasses.field(default_factory=Counter)
    undetected: list[str] = dataclasses.field(default_factory=list)


def answered_files(path: Path) -> dict[Path, str]:
    """The files covered by a cache's manifest, and the manifest itself: file → kind."""
    cache = Cache.open(path)
    manifest, directory = cache.manifest, Path(cache.directory)
    files = {path / "manifest.json": "manifest", directory / "manifest.json": "manifest"}
    for name, split in manifest.splits.items():
        for shard in range(len(split.numbers)):
            file = directory / split.file_name(manifest.name, name, shard)
            files[file] = "shard"
            files[Path(index_path(str(file)))] = "index"
    files |= {directory / entry.file: "dead letters" for entry in manifest.dead_letters}
    return {file: kind for file, kind in files.items() if file.stat().st_size}


def corrupt(path: Path, *, tries: int, seed: int = 0) -> CorruptionCounts:
    """Damages one file at a time, verifies the cache, and restores the file, `tries` times."""
    rng = random.Random(seed)
    files = [(file, kind, file.read_bytes()) for file, kind in sorted(answered_files(path).items())]
    damages = list(DAMAGES.items())
    counts = CorruptionCounts()
    while counts.tried < tries:
        file, kind, data = files[counts.tried % len(files)]
        name, damage = rng.choice(damages)
        damaged = damage(data, rng)
        if damaged == data:
            continue
        file.write_bytes(damaged)
        try:
            Cache.open(path, verify=True)
        except CacheError:
            pass
        else:
            counts.undetected.append(f"{name} of {file.name}")
        finally:
            file.write_bytes(data)
        counts.tried += 1
        counts.by_damage[name] += 1
        counts.by_kind[kind] += 1
    return counts
