"""The example of the README: lines of a poem become examples, and examples become batches.

Run it in a directory with a file `poem.txt`.
"""

from beam_pipes import Loader, build, drop, stage
from beam_pipes.sources import TextLines


@stage
def tokenize(line: str, *, min_length: int = 3) -> dict[str, object]:
    if len(line) < min_length:
        return drop("too_short")
    return {"text": line, "tokens": [ord(letter) for letter in line]}


build("poem", TextLines("poem.txt"), [tokenize], splits={"train": 0.9, "eval": 0.1}, to="cache")

for batch in Loader("cache/train", batch_size=32):
    print(batch["tokens"].shape, batch["text"][0])
