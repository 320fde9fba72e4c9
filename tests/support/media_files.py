"""Pictures, sounds and archives for the media recipes, and the caches built from them."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import soundfile
from PIL import Image

from beam_pipes import Cache, build
from beam_pipes.recipes import Recipe

RED, BLUE = (255, 0, 0), (0, 0, 255)
RATE = 8000


def tone(path: str, *, secs: float = 0.5, rate: int = RATE) -> None:
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    soundfile.write(path, 0.5 * np.sin(2 * np.pi * 200 * np.arange(round(secs * rate)) / rate), rate)


def picture(path: str, *, height: int = 20, width: int = 40, left: tuple[int, ...] = RED) -> None:
    """A picture whose left half is of one colour and whose right half is blue."""
    pixels = np.zeros((height, width, 3), np.uint8)
    pixels[:, : width // 2], pixels[:, width // 2 :] = left, BLUE
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).save(path)


def archive(path: str, members: dict[str, bytes]) -> None:
    """A tar archive of these files, in this order."""
    with tarfile.open(path, "w:gz" if path.endswith(".gz") else "w") as file:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            file.addfile(info, io.BytesIO(content))


def wav(secs: float) -> bytes:
    file = io.BytesIO()
    soundfile.write(file, np.zeros(round(secs * RATE)), RATE, format="WAV")
    return file.getvalue()


def built(recipe: Recipe, to: str = "cache") -> Cache:
    build(recipe.declaration(), to=to, workers=1)
    return Cache.open(to)


def loaded(recipe: Recipe, cache: Cache) -> dict[str, Any]:
    """The first batch, loaded by the lines that the recipe prints."""
    names: dict[str, Any] = {}
    lines = recipe.loading(f"{cache.path}/train", num_records=len(cache["train"]))
    exec("\n".join(lines).replace("...", "break"), names)
    batch: dict[str, Any] = names["batch"]
    return batch
