"""Runs where DALI itself is installed (`make .venv-dali/.installed`): its names, and what the programs of users give.

    .venv-dali/bin/python tests/references/dali_reference.py names   > tests/references/dali_names.json
    .venv-dali/bin/python tests/references/dali_reference.py answers > tests/references/dali_answers.json

Decoding needs `pip install --no-deps nvidia-nvimgcodec-cu12` too, its folder `nvidia/nvimgcodec` in LD_LIBRARY_PATH.
A program is a function of a module in `dali_programs/` that takes nothing, or `root`, an empty directory, and returns
JSON. DALI's iterators need torch, which is not there: in the module `nvidia.dali.plugin.pytorch` stands what they are
made of, DALI's `_DaliBaseIterator`, over NumPy.
"""

from __future__ import annotations

import inspect
import json
import sys
import tempfile
import types
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent


def programs(imports: Callable[[str], str] = str) -> dict[str, Callable[..., Any]]:
    """Name → the program; `imports` changes a line that imports from DALI."""
    found: dict[str, Callable[..., Any]] = {}
    for path in sorted((HERE / "dali_programs").glob("[a-z]*.py")):
        lines = path.read_text(encoding="utf-8").splitlines()
        text = "\n".join(imports(line) if line.startswith("from nvidia") else line for line in lines)
        module = types.ModuleType(f"dali_programs_{path.stem}")
        sys.modules[module.__name__] = module
        exec(compile(text, str(path), "exec"), vars(module))
        own = {name: value for name, value in vars(module).items() if inspect.isfunction(value)}
        helpers = set().union(*(function.__code__.co_names for function in own.values()))
        for name, function in own.items():
            takes = list(inspect.signature(function).parameters)
            if function.__module__ == module.__name__ and takes in ([], ["root"]) and name not in helpers:
                found[name] = function
    return found


def answer(program: Callable[..., Any]) -> Any:
    """What the program gives, as JSON has it."""
    with tempfile.TemporaryDirectory() as root, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        given = [root] if inspect.signature(program).parameters else []
        return json.loads(json.dumps(program(*given)))


def offer_iterators() -> None:
    """`nvidia.dali.plugin.pytorch` without torch."""
    import numpy as np
    from nvidia.dali.plugin.base_iterator import LastBatchPolicy, _DaliBaseIterator

    class DALIGenericIterator(_DaliBaseIterator):
        def __init__(
            self, pipelines: Any, output_map: Any, *args: Any, dynamic_shape: Any = None, **options: Any
        ) -> None:
            self.output_map = output_map
            super().__init__(pipelines, *args, **options)

        def __next__(self) -> Any:
            outputs = self._get_outputs()
            made = [
                {name: np.array(column.as_array()) for name, column in zip(self.output_map, one, strict=True)}
                for one in outputs
            ]
            self._schedule_runs()
            self._advance_and_check_drop_last()
            if self._reader_name:
                drops, left = self._remove_padded()
                if np.any(drops):
                    made = [{name: c[: int(n)] for name, c in one.items()} for one, n in zip(made, left, strict=True)]
            return made

    class DALIClassificationIterator(DALIGenericIterator):
        def __init__(self, pipelines: Any, *args: Any, **options: Any) -> None:
            super().__init__(pipelines, ["data", "label"], *args, **options)

    module = types.ModuleType("nvidia.dali.plugin.pytorch")
    vars(module).update(
        DALIGenericIterator=DALIGenericIterator,
        DALIClassificationIterator=DALIClassificationIterator,
        LastBatchPolicy=LastBatchPolicy,
    )
    sys.modules[module.__name__] = module


def names() -> dict[str, Any]:
    """Where → name → its arguments; None where it has none."""
    import nvidia.dali as dali
    from nvidia.dali import math, plugin, tfrecord
    from nvidia.dali import types as dali_types

    def arguments(value: Any) -> list[str] | None:
        try:
            return [name for name in inspect.signature(value).parameters if name not in ("self", "cls")]
        except (TypeError, ValueError):
            return None

    def members(value: Any) -> dict[str, list[str] | None]:
        every = {name: getattr(value, name) for name in dir(value) if not name.startswith("_")}
        return {name: arguments(one) if callable(one) else None for name, one in every.items()}

    own = {"Constant", "SampleInfo", "BatchInfo", "to_numpy_type", "to_dali_type"}
    enums = ("DALIDataType", "DALIImageType", "DALIInterpType", "PipelineAPIType")
    of_types = {n: v for n, v in members(dali_types).items() if n in own or n in enums or n.isupper() or n == "YCbCr"}
    signatures: dict[str, list[str]] = {}
    folder = Path(plugin.__path__[0])
    for file, wanted in (
        ("pytorch/__init__.py", ("DALIGenericIterator", "DALIClassificationIterator", "DALIRaggedIterator")),
        ("base_iterator.py", ("_DaliBaseIterator",)),
        ("jax/iterator.py", ("DALIGenericIterator", "data_iterator")),
        ("jax/clu.py", ("DALIGenericPeekableIterator", "peekable_data_iterator")),
        ("tf.py", ("_DALIDatasetV2",)),
    ):
        for name, own_arguments in _signatures(folder / file).items():
            if name in wanted:
                signatures[f"{file.partition('/')[0].removesuffix('.py')}.{name}"] = own_arguments
    return {
        "Pipeline": {"__init__": arguments(dali.Pipeline.__init__), **members(dali.Pipeline)},
        "DataNode": members(dali.pipeline.DataNode),
        "math": {name: value for name, value in members(math).items() if name != "sys"},
        "tfrecord": {
            n: None for n in ("FixedLenFeature", "VarLenFeature", "int64", "float32", "string") if hasattr(tfrecord, n)
        },
        "types": of_types,
        "TensorList": members(dali.tensors.TensorListCPU),
        "iterators": signatures,
        "version": dali.__version__,
    }


def _signatures(path: Path) -> dict[str, list[str]]:
    """Class or function → its arguments, of a file that cannot be imported here."""
    import ast

    found: dict[str, list[str]] = {}
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        init = node
        if isinstance(node, ast.ClassDef):
            init = next((one for one in node.body if getattr(one, "name", "") == "__init__"), None)
        if isinstance(init, ast.FunctionDef):
            every = [*init.args.args, *init.args.kwonlyargs]
            found[node.name] = [one.arg for one in every if one.arg != "self"]
    return found


def main() -> None:
    if sys.argv[1] == "names":
        told: dict[str, Any] = names()
    else:
        offer_iterators()
        told = {}
        for name, program in programs().items():
            if len(sys.argv) < 3 or name in sys.argv[2:]:
                told[name] = answer(program)
    json.dump(told, sys.stdout, indent=None if sys.argv[1] == "answers" else 1, sort_keys=True)
    print()


if __name__ == "__main__":
    main()
