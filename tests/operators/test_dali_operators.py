"""Our operators give what DALI 2.4 gives on the CPU, on the samples of `dali_cases`; its answers are recorded."""

from __future__ import annotations

import types as namespace
from typing import Any

import numpy as np
import pytest
from dali_cases import CASES, batch_size, outputs_of, read_answers, write_files

from beam_pipes.graph import Pipeline, types
from beam_pipes.transforms import fn
from beam_pipes.transforms.operators.image.policies import AUGMENTATIONS, Canvas, Magnitudes

ANSWERS = read_answers()


@pytest.fixture(scope="module")
def modules(tmp_path_factory: pytest.TempPathFactory) -> Any:
    root = tmp_path_factory.mktemp("files")
    write_files(root)
    return namespace.SimpleNamespace(fn=fn, types=types, math=fn.math, files=str(root), augment=augment)


def augment(images: Any, name: str, magnitudes: Any, index: int, is_negative: bool) -> Any:
    first, last, is_signed = magnitudes
    shift = 1 if name in ("brightness", "contrast", "color") else 0
    magnitude = Magnitudes(first, last, is_signed, shift).of(index, 11, is_negative)
    return fn.python_function(images, function=lambda image: AUGMENTATIONS[name](image, magnitude, Canvas(), (1, 1)))


@pytest.mark.parametrize("name", CASES)
def test_an_operator_gives_what_dali_gives(name: str, modules: Any) -> None:
    case = CASES[name]

    outputs = outputs_of(case, modules, Pipeline(batch_size=batch_size(case), num_threads=2, seed=7))

    recorded = [key for key in ANSWERS if key.startswith(f"{name}|")]
    assert len(recorded) == sum(map(len, outputs))
    for at, column in enumerate(outputs):
        for index, found in enumerate(column):
            expected = ANSWERS[f"{name}|{at}|{index}"]
            where = f"output {at}, sample {index}"
            assert (found.dtype, found.shape) == (expected.dtype, expected.shape), where
            if found.dtype.kind == "f":
                assert np.array_equal(np.isfinite(found), np.isfinite(expected)), where
                found, expected = np.where(np.isfinite(found), found, 0), np.where(np.isfinite(expected), expected, 0)
            apart = np.abs(found.astype(np.float64) - expected)
            far = apart > case.atol + case.rtol * np.abs(expected)
            assert far.sum() <= case.share * far.size, (where, apart.max())
            assert not (far & (apart > case.most)).any(), (where, apart.max())
