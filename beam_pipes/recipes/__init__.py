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
"""

from beam_pipes.recipes.audio import audio as audio
from beam_pipes.recipes.audio import audio_example as audio_example
from beam_pipes.recipes.images import class_of as class_of
from beam_pipes.recipes.images import decode_images as decode_images
from beam_pipes.recipes.images import image_example as image_example
from beam_pipes.recipes.images import images as images
from beam_pipes.recipes.tables import row_example as row_example
from beam_pipes.recipes.tables import table as table
from beam_pipes.recipes.texts import DEDUP as DEDUP
from beam_pipes.recipes.texts import FORMATS as FORMATS
from beam_pipes.recipes.texts import chat as chat
from beam_pipes.recipes.texts import text_of as text_of
from beam_pipes.recipes.texts import tokenize as tokenize
from beam_pipes.recipes.texts import tokens as tokens
from beam_pipes.recipes.tokenizer_names import open_tokenizer as open_tokenizer
from beam_pipes.recipes.written import Recipe as Recipe
