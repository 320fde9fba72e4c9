"""Graphs of one operator each, run by DALI and by us on the same samples; as a program, records DALI's answers.

`.venv-dali/bin/python tests/support/dali_cases.py` writes `dali_answers.npz` and `dali_operators.json`, the operators
that this DALI has on the CPU, into `tests/references/`. A case is a function of the modules (`fn`, `types`, `math`)
and of data nodes; its other fields define the samples of the nodes and the tolerance of the answers.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from dali_array_cases import ARRAYS, COORDINATES
from dali_file_cases import READERS, REFERENCES, SOUND, write_files
from dali_image_cases import IMAGES
from dali_samples import Case

ANSWERS = REFERENCES / "dali_answers.npz"
OPERATORS = REFERENCES / "dali_operators.json"

CASES: Mapping[str, Case] = {**ARRAYS, **COORDINATES, **IMAGES, **SOUND, **READERS}


def outputs_of(case: Case, modules: Any, pipeline: Any) -> list[list[Any]]:
    """Runs a case within an unbuilt pipeline of either system; a list of samples for each output."""
    with pipeline:
        nodes = []
        for index, column in enumerate(case.columns):
            options = {"layout": case.layout} if case.layout and not index else {}
            nodes.append(modules.fn.external_source(_forever(column), **options))
        made = case.call(modules, *nodes)
        pipeline.set_outputs(*(made if isinstance(made, (tuple, list)) else [made]))
    pipeline.build()
    return [[np.array(column.at(index)) for index in range(len(column))] for column in pipeline.run()]


def _forever(column: Any) -> Callable[[], Any]:
    return lambda: column


def batch_size(case: Case) -> int:
    """Samples of a case: those of its first column unless specified."""
    return case.size or len(case.columns[0])


def write_answers(answers: Mapping[str, Any]) -> None:
    """One array for each dtype: a file in an archive costs more than most answers."""
    dtypes = sorted({one.dtype.name for one in answers.values()})
    joined = {
        dtype: np.concatenate([one.ravel() for one in answers.values() if one.dtype.name == dtype]) for dtype in dtypes
    }
    index = [[key, one.dtype.name, list(one.shape)] for key, one in answers.items()]
    np.savez_compressed(ANSWERS, index=np.frombuffer(json.dumps(index).encode(), np.uint8), **joined)


def read_answers() -> dict[str, Any]:
    """`case|output|sample` → what DALI gave."""
    with np.load(ANSWERS) as file:
        arrays = dict(file)
    begins, made = dict.fromkeys(arrays, 0), {}
    for key, dtype, shape in json.loads(arrays.pop("index").tobytes()):
        begin = begins[dtype]
        begins[dtype] = begin + int(np.prod(shape))
        made[key] = arrays[dtype][begin : begins[dtype]].reshape(shape)
    return made


def augment(images: Any, name: str, magnitudes: Any, index: int, is_negative: bool) -> Any:
    """One of DALI's augmentations, of bin `index` of 11; `magnitudes` are the first, the last, and whether signed."""
    from nvidia.dali import fn, types
    from nvidia.dali.auto_aug import augmentations
    from nvidia.dali.auto_aug.core import signed_bin

    first, last, is_signed = magnitudes
    made = getattr(augmentations, f"{name}_no_shape" if name.startswith("translate") else name)
    if first != last:
        shifted = {"mag_to_param": augmentations.shift_enhance_range}
        others = shifted if name in ("brightness", "contrast", "color") else {}
        made = made.augmentation(mag_range=(first, last), randomly_negate=is_signed, **others)
    sign = fn.random.uniform(values=[int(is_negative)], dtype=types.INT32)
    return made(images, magnitude_bin=signed_bin(index, random_sign=sign), num_magnitude_bins=11)


def main() -> None:
    """Records what DALI gives."""
    import types as namespace

    from nvidia import dali
    from nvidia.dali import fn, math, ops, types

    files = tempfile.TemporaryDirectory()
    write_files(Path(files.name))
    modules = namespace.SimpleNamespace(fn=fn, math=math, types=types, files=files.name, augment=augment)
    answers = {}
    for name, case in CASES.items():
        if sys.argv[1:] and not any(one in name for one in sys.argv[1:]):
            continue
        pipeline = dali.Pipeline(batch_size=batch_size(case), num_threads=1, device_id=None, seed=7)
        try:
            outputs = outputs_of(case, modules, pipeline)
        except Exception as error:
            raise RuntimeError(f"{name}: {error}") from error
        for at, column in enumerate(outputs):
            for index, sample in enumerate(column):
                answers[f"{name}|{at}|{index}"] = sample
    write_answers(answers)
    found = {}
    for schema in sorted(ops.cpu_ops()):
        known = dali.backend.GetSchema(schema)
        if not schema.startswith("_") and not known.IsDeprecated() and not known.IsDocHidden():
            names = [one for one in known.GetArgumentNames() if not known.IsDeprecatedArg(one)]
            found[_name(schema)] = sorted(set(names) - {"bytes_per_sample_hint", "device", "preserve", "seed"})
    written = {"version": dali.__version__, "operators": found}
    OPERATORS.write_text(json.dumps(written, indent=1, sort_keys=True) + "\n", encoding="utf-8")


def _name(schema: str) -> str:
    from nvidia.dali.ops._names import _functional

    *family, last = schema.split("__")
    return ".".join([*family, _functional._to_snake_case(last)])


if __name__ == "__main__":
    main()
