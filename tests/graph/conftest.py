"""What tests of graphs run on: a small directory of files in two classes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest


@pytest.fixture(scope="session")
def files_root(tmp_path_factory: pytest.TempPathFactory) -> str:
    """`cat/0.jpg` … `dog/4.jpg`: file i of a class holds the bytes 0 … 4·(i + 1) - 1, twice that for dogs."""
    root: Path = tmp_path_factory.mktemp("files")
    for label, name in enumerate(("cat", "dog")):
        (root / name).mkdir()
        for index in range(5):
            np.arange(4 * (index + 1) * (label + 1), dtype=np.uint8).tofile(root / name / f"{index}.jpg")
    return str(root)
