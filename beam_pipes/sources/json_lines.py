"""JSON lines as records."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import KW_ONLY, dataclass
from functools import cached_property
from typing import Any

from beam_pipes.errors import SourceError
from beam_pipes.sources.lines import BOM, LineBlock, LineSource, RowPiece, decoded, line_spans
from beam_pipes.sources.record_batch import Batcher, RecordBatch
from beam_pipes.sources.schema import Convert, Schema, check_schema, describe_schema, json_converters
from beam_pipes.sources.selection import Paths

# What json.loads calls, without looking for blanks around the object: half the time of a short line.
_scan_object = json.JSONDecoder().raw_decode


@dataclass(frozen=True)
class JSONLines(LineSource):
    """Every line is one record, a JSON object as a `dict`. Record ids are `name@byte offset` (decompressed).

    `b'{"text": "hi", "n": 3}\\n'` → `{"text": "hi", "n": 3}`

    With a `schema` (see `schema.py`) values have exactly its keys, converted; without, they are as they stand. A line
    that is not a JSON object in UTF-8, or does not fit the schema, is a bad record. Blank lines are skipped. Large
    files are split, except `.gz`, `.bz2` and `.zst`.
    """

    paths: Paths
    _: KW_ONLY
    schema: Schema | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_schema(self.schema, scalars_only=False)

    __hash__ = LineSource.__hash__

    def _inputs(self) -> Paths:
        return self.paths

    @property
    def output_type(self) -> type:
        return dict

    @cached_property
    def _converters(self) -> dict[str, Convert] | None:
        return None if self.schema is None else json_converters(self.schema)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "_converters"}

    def _add(self, batcher: Batcher, file: str, block: LineBlock) -> Iterator[RecordBatch]:
        spans = line_spans(block.data)
        if block.offset == 0 and block.data.startswith(BOM) and not block.data[len(BOM) : spans[0][1]].strip():
            del spans[0]  # a line of the byte order mark alone is blank
        piece = RowPiece(file=file, first_ordinal=batcher.next_ordinal, block=block, spans=spans)
        quick = self._quickly(block)
        if quick is not None and len(quick) == len(piece.spans):
            return batcher.add(piece, quick, num_bytes=len(block.data))
        values, ordinals, bad = self._parse_each(piece, range(len(piece.spans)))
        return batcher.add(piece, values, num_bytes=len(block.data), ordinals=ordinals, bad=bad)

    def _quickly(self, block: LineBlock) -> list[dict[str, Any]] | None:
        """All values of a block of lines that begin and end with their object; None if any is otherwise."""
        values = []
        try:
            for line in block.data.decode("utf-8").split("\n"):
                if line and line != "\r":
                    value, end = _scan_object(line)
                    if type(value) is not dict or line[end:] not in ("", "\r"):
                        return None
                    values.append(value)
            if self._converters is not None:
                convert = list(self._converters.items())
                values = [{name: each(value.get(name)) for name, each in convert} for value in values]
        except (ValueError, RecursionError):
            return None
        return values

    def parse(self, raw: bytes, *, file: str, position: int) -> dict[str, Any]:
        if position == 0 and raw.startswith(BOM):
            raw = raw[len(BOM) :]
        text = decoded(raw, file=file, position=position)
        try:
            value = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise SourceError(
                f"expected a JSON object, found {text!r:.80}: {error}", file=file, offset=position
            ) from error
        if not isinstance(value, dict):
            raise SourceError(f"expected a JSON object, found {text!r:.80}", file=file, offset=position)
        converters = self._converters
        if converters is None:
            return value
        row = {}
        for name, convert in converters.items():
            try:
                row[name] = convert(value.get(name))
            except ValueError as error:
                raise SourceError(f"key {name!r}: {error}", file=file, offset=position, column=name) from error
        return row

    def fingerprint_config(self) -> Mapping[str, Any]:
        return {
            "source": "JSONLines",
            "version": 1,
            "schema": describe_schema(self.schema),
            "max_line_bytes": self.max_line_bytes,
        }
