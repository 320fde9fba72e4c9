"""Sources of tasks: where raw examples come from. `SOURCES` is the table of their names."""

from __future__ import annotations

SOURCES = {
    "FileDataSource": "file_source",
    "FunctionDataSource": "function_source",
    "ProtoDataSource": "proto_source",
    "TFExampleDataSource": "tf_example_source",
    "TextLineDataSource": "text_line_source",
    "TfdsDataSource": "tfds_source",
}
