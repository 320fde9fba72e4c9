"""Recipes: complete declarations for common jobs, each written as a Python module.

    tokens(data, tokenizer=…) ──▶ Recipe.python, the text of a module ──▶ Recipe.declaration(), what it declares

A recipe writes its decisions as a module, and the build executes that text. So the module that `--print-python` shows
and the command's build cannot differ, and you can continue from it: add a stage, change a feature.

| recipe | from | to |
| --- | --- | --- |
| `tokens` | texts: lines, JSON Lines, Parquet, CSV, tar, files | ids |
| `chat` | messages | ids and weights of the loss |
| `images` | folders of image files, tar | pixels or files, and labels |
| `audio` | sound files and transcripts, tar | samples and text |
| `table` | CSV, TSV, JSON Lines, Parquet | columns and labels |

A name's module is imported on first use: `table` needs nothing of `audio`.
"""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from beam_pipes.recipes.audio import audio as audio
    from beam_pipes.recipes.audio import audio_example as audio_example
    from beam_pipes.recipes.images import class_of as class_of
    from beam_pipes.recipes.images import decode_images as decode_images
    from beam_pipes.recipes.images import image_example as image_example
    from beam_pipes.recipes.images import images as images
    from beam_pipes.recipes.row_values import label_of as label_of
    from beam_pipes.recipes.row_values import row_example as row_example
    from beam_pipes.recipes.tables import table as table
    from beam_pipes.recipes.texts import DEDUP as DEDUP
    from beam_pipes.recipes.texts import FORMATS as FORMATS
    from beam_pipes.recipes.texts import chat as chat
    from beam_pipes.recipes.texts import text_of as text_of
    from beam_pipes.recipes.texts import tokenize as tokenize
    from beam_pipes.recipes.texts import tokens as tokens
    from beam_pipes.recipes.tokenizer_names import open_tokenizer as open_tokenizer
    from beam_pipes.recipes.written import Recipe as Recipe

_NAMES = {
    "audio": "audio audio_example",
    "images": "class_of decode_images image_example images",
    "row_values": "label_of row_example",
    "tables": "table",
    "texts": "DEDUP FORMATS chat text_of tokenize tokens",
    "tokenizer_names": "open_tokenizer",
    "written": "Recipe",
}


class _Recipes(ModuleType):
    """Properties, since an import of the module `audio` would put it in place of the function of this name."""

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *" ".join(_NAMES.values()).split()})


def _offer(module: str, name: str) -> None:
    def found(_: ModuleType) -> object:
        return getattr(importlib.import_module(f"{__name__}.{module}"), name)

    setattr(_Recipes, name, property(found, lambda *_: None))


for _module, _names in _NAMES.items():
    for _name in _names.split():
        _offer(_module, _name)
sys.modules[__name__].__class__ = _Recipes
