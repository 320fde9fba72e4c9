"""What every supported Python has to do with the slim base: build a cache on two processes, and load it.

`make pythons` runs it with a wheel in a fresh environment of each interpreter that the machine has.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from beam_pipes import Loader, build, stage
from beam_pipes.sources import TextLines


@stage
def tokenize(line: str) -> dict[str, object]:
    return {"tokens": [ord(letter) for letter in line], "text": line}


def main() -> None:
    directory = Path(tempfile.mkdtemp())
    (directory / "poem.txt").write_text("".join(f"line {number}\n" for number in range(1000)))
    source = TextLines(directory / "poem.txt")
    splits = {"train": 0.9, "eval": 0.1}
    build("poem", source, [tokenize], splits=splits, to=directory / "cache", workers=2, target_shard_bytes=2000)
    batches = list(Loader(directory / "cache" / "train", batch_size=32, seed=1))
    assert batches[0]["tokens"].shape[0] == 32 and len(batches) > 20
    print(f"Python {sys.version.split()[0]}: built and loaded {32 * len(batches)} rows")


if __name__ == "__main__":
    main()
