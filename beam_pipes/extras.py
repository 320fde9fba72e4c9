"""Optional dependencies: imported where they are needed, named with their pip command where they are missing."""

from __future__ import annotations

import importlib
from types import ModuleType

from beam_pipes.errors import MissingExtraError

# Module that is imported → the extra that installs it.
EXTRA_OF_MODULE = {
    "apache_beam": "beam",
    "google.cloud.storage": "gcs",
    "grain": "dev",
    "jax": "jax",
    "ml_dtypes": "jax",
    "pyarrow": "sources",
    "pyarrow.parquet": "sources",
    "rich": "cli",
    "sentencepiece": "text",
    "soundfile": "audio",
    "tensorflow": "tf",
    "tensorflow_datasets": "dev",
    "tensorflow_transform": "beam",
    "tokenizers": "text",
    "torch": "torch",
    "typer": "cli",
    "zstandard": "sources",
}


def require(module: str, *, purpose: str) -> ModuleType:
    """Imports an optional `module`, or raises `MissingExtraError` with the command that installs it.

    `require("torch", purpose="DataLoader.to_torch")` without torch →
    `DataLoader.to_torch needs torch, which is not installed: pip install 'beam-pipes[torch]'`.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        root = module.partition(".")[0]
        if error.name is not None and error.name.partition(".")[0] != root:
            raise  # the module is there, one of its own dependencies is not: its own message is the better one
        extra = EXTRA_OF_MODULE.get(module) or EXTRA_OF_MODULE[root]
        raise MissingExtraError(
            f"{purpose} needs {module}, which is not installed: pip install 'beam-pipes[{extra}]'",
            module=module,
            extra=extra,
        ) from error
