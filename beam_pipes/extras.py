"""Optional dependencies: imported where they are needed, and reported with their pip command if they are missing.

For TensorFlow, also what all its users need: names for annotations, and `unbatched`, for cases where its own fails.
`loaded_on_first_use` is for packages that should not load everything when one name is asked for; `lacking` and
`absent_here` are what packages say of names that another system has, and they do not.
"""

from __future__ import annotations

import contextlib
import dis
import importlib
import importlib.util
import sys
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import TYPE_CHECKING, TypeAlias

from beam_pipes.errors import MissingExtraError, logger

if TYPE_CHECKING:
    import tensorflow as tf

#: Names for annotations, usable even if a local variable `tf` is the module.
TfDataset: TypeAlias = "tf.data.Dataset"
TfTensor: TypeAlias = "tf.Tensor"
TfSpec: TypeAlias = "tf.TypeSpec"

# Imported module → the extra that installs it.
EXTRA_OF_MODULE = {
    "PIL": "images",
    "PIL.Image": "images",
    "PIL.ImageColor": "images",
    "PIL.TiffImagePlugin": "images",
    "absl": "tf",
    "apache_beam": "beam",
    "array_record.python.array_record_module": "formats",
    "array_api_compat": "graph",
    "azure.core": "azure",
    "azure.identity": "azure",
    "azure.storage.blob": "azure",
    "av": "video",
    "boto3": "s3",
    "boto3.s3.transfer": "s3",
    "cryptography.hazmat.primitives.serialization": "sign",
    "cv2": "images",
    "datatrove": "datatrove",
    "google.cloud.storage": "gcs",
    "huggingface_hub": "hub",
    "jax": "jax",
    "jinja2": "cli",
    "keras": "tf",
    "license_expression": "terms",
    "malt": "graph",
    "note_seq": "music",
    "ml_dtypes": "jax",
    "pillow_heif.as_plugin": "heic",
    "prometheus_client": "telemetry",
    "pyarrow": "sources",
    "pyarrow.parquet": "sources",
    "rich": "cli",
    "scipy.sparse": "images",
    "securesystemslib.dsse": "sign",
    "securesystemslib.exceptions": "sign",
    "securesystemslib.signer": "sign",
    "sentencepiece": "text",
    "simplejpeg": "images",
    "pycocotools.mask": "coco",
    "pypinyin": "chinese",
    "pypinyin.constants": "chinese",
    "pypinyin.contrib.tone_convert": "chinese",
    "soundfile": "audio",
    "soxr": "audio",
    "starlette": "view",
    "tensorflow": "tf",
    "tensorflow_datasets": "tfds",
    "tensorflow_metadata": "tft",
    "tensorflow_transform": "tft",
    "tiktoken": "text",
    "tokenizers": "text",
    "torch": "torch",
    "typer": "cli",
    "uvicorn": "view",
    "webdataset": "formats",
    "zstandard": "sources",
}


def require(module: str, *, purpose: str) -> ModuleType:
    """Imports an optional `module`, or raises `MissingExtraError` with the command that installs it.

    `require("torch", purpose="DataLoader.to_torch")` without torch →
    `DataLoader.to_torch needs torch, which is not installed: pip install 'beam-pipes[torch]'`.
    """
    if module.startswith("tensorflow") and "tensorflow" not in sys.modules:
        _load_triton()
    try:
        return importlib.import_module(module)
    except ImportError as error:
        root = module.partition(".")[0]
        if error.name is not None and error.name.partition(".")[0] != root:
            raise  # the module exists but lacks a dependency: its own message is clearer
        extra = EXTRA_OF_MODULE.get(module) or EXTRA_OF_MODULE[root]
        raise MissingExtraError(
            f"{purpose} needs {module}, which is not installed: pip install 'beam-pipes[{extra}]'",
            module=module,
            extra=extra,
        ) from error


def tensorflow(purpose: str) -> ModuleType:
    """The `tensorflow` module, or `MissingExtraError` naming `purpose`.

    Inside a traced function it must already be loaded: it is looked up, not imported, since AutoGraph cannot convert
    the import machinery.
    """
    loaded = sys.modules.get("tensorflow")
    return require("tensorflow", purpose=purpose) if loaded is None else loaded


def absent_here(name: str, table: Mapping[str, str], system: str) -> str:
    """The end of a message about a name that only `system` has, from the table that its page is made from; "" for
    other names. `tokenizer` → ` SeqIO's is absent here: there is no tokenizer of tensorflow_text: …`."""
    return f" {system}'s is absent here: {table[name]}." if name in table else ""


def lacking(module: str, name: str, instead: str = "", *, near: str = "") -> Exception:
    """What the `__getattr__` of a module raises for a name that it lacks.

    That is an AttributeError; within `from module import name` an ImportError where `instead` says what to do, because
    Python would replace the message of an AttributeError by its own.

    Args:
        module: its name.
        name: the name that was asked for.
        instead: what is known of it, as `absent_here` gives it.
        near: what to say where nothing is known.
    """
    frame = sys._getframe(1)
    while frame.f_globals.get("__name__", "").partition(".")[0] == "beam_pipes" and frame.f_back is not None:
        frame = frame.f_back
    if instead and frame.f_lasti >= 0 and frame.f_code.co_code[frame.f_lasti] == dis.opmap["IMPORT_FROM"]:
        return ImportError(f"cannot import name {name!r} from {module!r}.{instead}", name=module)
    return AttributeError(f"module {module!r} has no attribute {name!r}{'.' if instead else ''}{instead or near}")


def names_of(module: str, absent: Mapping[str, str], system: str) -> Callable[[str], object]:
    """The `__getattr__` of a module that has all its names: it answers those of `absent`."""

    def __getattr__(name: str) -> object:
        raise lacking(module, name, absent_here(name, absent, system))

    return __getattr__


def loaded_on_first_use(
    package: str, names: Mapping[str, str], *, absent: Mapping[str, str] | None = None, system: str = ""
) -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """`__getattr__` and `__dir__` of a package whose names are loaded on first use.

    `names`: submodule → the names that it gives, with spaces between them, `there=here` where they differ; those of
    `""` are submodules themselves. A module of another room is written in full, as `beam_pipes.graph.jax_iterator`.
    `absent`: name of `system` that is not here → what to do instead.
    """
    home_of = {
        there: (home, here or there)
        for home, listed in names.items()
        for there, _, here in (entry.partition("=") for entry in listed.split())
    }

    def __getattr__(name: str) -> object:
        if name not in home_of:
            near = f"; it offers {', '.join(sorted(home_of))}"
            raise lacking(package, name, absent_here(name, absent or {}, system), near=near)
        home, own = home_of[name]
        full = home if home.startswith("beam_pipes.") else f"{package}.{home or own}"
        module = importlib.import_module(full)
        return getattr(module, own) if home else module

    return __getattr__, lambda: sorted(home_of)


def unbatched(dataset: TfDataset) -> TfDataset:
    """`dataset.unbatch()` that also works if an item holds no values.

    TensorFlow's crashes there with a segmentation fault (2.21, batches of shape `[3, 0]`). It is still used if shapes
    rule that out, because slices take 1.5 to 1.9 times its processor time (batches of 64 to 1,024 short rows).
    """
    tf = require("tensorflow", purpose="tf.data")
    dense = [spec for spec in tf.nest.flatten(dataset.element_spec) if isinstance(spec, tf.TensorSpec)]
    if all(spec.shape.rank is not None and all(spec.shape[1:]) for spec in dense):
        return dataset.unbatch()

    @tf.autograph.experimental.do_not_convert  # type: ignore[untyped-decorator]
    def slices(*items: TfTensor) -> TfDataset:  # a tuple batch arrives as several arguments
        return tf.data.Dataset.from_tensor_slices(items if len(items) > 1 else items[0])

    return dataset.flat_map(slices)


def warn_of_tensorflow_before_torch() -> None:
    """Says in time that torch's first optimizer will abort the process, if TensorFlow was loaded before Triton."""
    if "tensorflow" in sys.modules and "triton" not in sys.modules and importlib.util.find_spec("triton") is not None:
        logger(__name__).warning(
            "tensorflow was imported before torch's compiler, and torch's first optimizer will abort this process "
            "(LLVM ERROR: inconsistency in registered CommandLine options), as both contain an LLVM. Put "
            "`import torch._dynamo` before the first import of tensorflow, or of keras with its backend."
        )


def _load_triton() -> None:
    """Loads Triton, if installed, before TensorFlow: 0.2 s.

    Both contain an LLVM. Triton's aborts the process if loaded second, and torch loads it with the first optimizer.
    """
    with contextlib.suppress(ImportError):
        importlib.import_module("triton._C.libtriton")
