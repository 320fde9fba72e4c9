"""Sources of tasks: where raw examples come from. `SOURCES` is the table of their names."""

from __future__ import annotations

SOURCES = {
    "FileDataSource": "files",
    "FunctionDataSource": "function_source",
    "ProtoDataSource": "files",
    "TFExampleDataSource": "files",
    "TextLineDataSource": "files",
    "TfdsDataSource": "tfds",
}
