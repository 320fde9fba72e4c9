"""A cache with a picture as a file, one as pixels, and sound, in two records of two classes."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import soundfile
from PIL import Image

from beam_pipes.cache import Cache, FeatureSpec, write_cache


def jpeg(width: int, height: int) -> bytes:
    file = io.BytesIO()
    Image.new("RGB", (width, height), "teal").save(file, "JPEG")
    return file.getvalue()


def wav(num_samples: int, rate: int) -> bytes:
    file = io.BytesIO()
    soundfile.write(file, np.sin(np.arange(num_samples) * 0.1) * 0.3, rate, format="WAV")
    return file.getvalue()


def cache(directory: Path, *, picture: bytes | None = None) -> Cache:
    """Published in `directory`; `picture` is another file in place of each JPEG."""
    examples = [
        {
            "photo": picture or jpeg(400, 200),
            "pixels": np.full((20, 30, 3), 90 * label, np.uint8),
            "speech": wav(4000, 8000),
            "label": label,
            "text": "<b>to be</b>",
        }
        for label in (0, 1)
    ]
    features = {
        "photo": FeatureSpec("bytes"),
        "pixels": FeatureSpec("uint8", shape=(20, 30, 3)),
        "speech": FeatureSpec("bytes"),
        "label": FeatureSpec("int64", classes=("cat", "dog")),
        "text": FeatureSpec("str"),
    }
    write_cache(directory, {"train": examples}, features=features)
    return Cache.open(directory)
