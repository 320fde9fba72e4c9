"""Inspects files of rows before anything is declared: their format, reading options, and first rows.

    files_of("sales")                  →  part-0.parquet, part-1.parquet; left out: 1 _SUCCESS
    reading_of("a.tsv", "tsv")         →  {"quote": '"'}, because its writer quotes
    sampled("a.jsonl", "json")         →  the first rows of the first file, of the last one, of the others

The decisions are written into the module of a recipe, as options of its source.
"""

from __future__ import annotations

import csv
import functools
import io
import os
import re
import shlex
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path, PurePosixPath
from typing import Any

from beam_pipes.checks import choice
from beam_pipes.engine.records import Table, columns_of_rows
from beam_pipes.errors import DeclarationError, SourceError
from beam_pipes.recipes.written import Common, Module, call
from beam_pipes.sources import CSV, TSV, JSONLines, Tar
from beam_pipes.sources.byte_stream import CODEC_OF_SUFFIX, codec_of, decompressed, read_range, refuse_unless_text
from beam_pipes.sources.delimited import Dialect, Numbers, allow_fields_of, unique_names
from beam_pipes.sources.record_batch import BadRecord, RecordBatch
from beam_pipes.sources.selection import FoundFile, FoundFiles, Paths, matcher, select
from beam_pipes.sources.tar import is_archive
from beam_pipes.storage.local import is_remote, storage_for

#: Suffix of a file, without compression → its format.
FORMAT_OF_SUFFIX = {
    ".csv": "csv",
    ".json": "json",
    ".jsonl": "json",
    ".ndjson": "json",
    ".parquet": "parquet",
    ".tar": "tar",
    ".text": "text",
    ".tsv": "tsv",
    ".txt": "text",
}
#: Format → the source that reads it. "text": each line is a text; "files": each file is one.
FORMATS = {
    "csv": "CSV",
    "files": "Files",
    "json": "JSONLines",
    "parquet": "Parquet",
    "tar": "Tar",
    "text": "TextLines",
    "tsv": "TSV",
}

#: Bytes inspected per file, and of all files if the first ones do not suffice.
LOOKED_AT = 4 << 20
_LOOKED_AT_IN_ALL = 16 * LOOKED_AT

# Suffix of a compression that is not read → the command that undoes it.
_UNPACKED_BY = {".xz": "unxz", ".lzma": "unxz", ".lz4": "lz4 -dm", ".zip": "unzip", ".7z": "7z x", ".br": "brotli -d"}

# Suffix of a table that is not read → the command that converts it, which may be a function of pandas.
_READ_BY_PANDAS = (
    ".dta=stata .feather=feather .h5=hdf .ipc=feather .ods=excel .orc=orc .pickle=pickle .pkl=pickle .sas7bdat=sas "
    ".sav=spss .xls=excel .xlsm=excel .xlsx=excel .xml=xml"
)
_BY_PYTHON = """python -c "import {0}; {0}.{1}('FILE').{2}('NEW.parquet')\""""
_CONVERTED_BY = {
    **{
        suffix: _BY_PYTHON.format("pandas", f"read_{name}", "to_parquet")
        for suffix, name in (each.split("=") for each in _READ_BY_PANDAS.split())
    },
    ".arrow": _BY_PYTHON.format("datasets", "Dataset.from_file", "to_parquet") + "; of Feather: pandas.read_feather",
    ".avro": _BY_PYTHON.format("polars", "read_avro", "write_parquet"),
    ".duckdb": "duckdb FILE \"COPY TABLE_NAME TO 'NEW.parquet'\"",
    **dict.fromkeys((".db", ".sqlite", ".sqlite3"), "sqlite3 -header -csv FILE 'SELECT * FROM TABLE_NAME' > NEW.csv"),
}

# Files that Spark and Hadoop write beside the data, and their readers skip.
_MARKS = ("_SUCCESS", "_metadata", "_common_metadata", "_committed_*", "_started_*", "_temporary", "_spark_metadata")

# Tables that keep older versions of rows in files beside the current ones: where the log is that tells them apart, and
# what exports the current rows.
_LOGS = {"Delta": "_delta_log", "Hudi": ".hoodie", "Iceberg": "metadata"}
_EXPORTS = {
    "Delta": "deltalake: DeltaTable(PATH).to_pyarrow_dataset() and pyarrow.dataset.write_dataset",
    "Hudi": 'Spark: spark.read.format("hudi").load(PATH).write.parquet(NEW)',
    "Iceberg": "pyiceberg: catalog.load_table(NAME).scan().to_arrow() and pyarrow.parquet.write_table",
}
# The index beside a shard of a cache.
_INDEX = re.compile(r"\.tfrecord-\d{5,}-of-\d{5,}\.index$")
# Id of a file group, token of a write, instant of a commit.
_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)(e[+-]?[0-9]+)?", re.ASCII | re.IGNORECASE)
_HUDI_FILE = re.compile(r"[0-9a-f]{8}-[0-9a-f-]{27}-[0-9]+_[0-9]+-[0-9]+-[0-9]+_[0-9]{14,17}\.parquet$")


@dataclass
class RowFiles:
    """The files of an input without Spark's marker files; name of a marker → how many were left out, and reason → how
    many others were.
    """

    paths: Paths
    files: list[FoundFile]
    marks: Mapping[str, int]
    others: Mapping[str, int]

    @property
    def exclude(self) -> list[str] | None:
        """The globs of marker files, for the source of these files; None if there are none."""
        return [f"**/{mark}" for mark in _MARKS] if self.marks else None

    def left_out(self, kind: str) -> Counter[str]:
        """What a format does not read, by reason: files beside archives, and those of 0 bytes, if none is a record."""
        found = Counter({**self.marks, **self.others})
        for file in self.files if kind != "files" else ():
            if kind == "tar" and not is_archive(file.name):
                found[PurePosixPath(file.name).suffix.lower()] += 1
            elif not file.size:
                found["empty"] += 1
        return found


def files_of(data: Paths | RowFiles) -> RowFiles:
    """The files of an input, searched once.

    Raises `DeclarationError` for a table of Delta Lake, Hudi or Iceberg, whose files alone do not define its content.
    """
    if isinstance(data, RowFiles):
        return data
    is_mark = matcher(_MARKS)
    files, marks = list[FoundFile](), Counter[str]()
    found = select(data).find()
    refuse_caches(found)
    _refuse_versioned(found)
    for file in found:
        if "/_" not in f"/{file.name}":  # true for nearly all of a million files
            files.append(file)
            continue
        mark = next(filter(is_mark, file.name.split("/")), None)
        if mark is None:
            files.append(file)
        else:
            marks[mark.rpartition("_")[0] or mark] += 1
    if not files:
        raise DeclarationError(f"there are only marks of Spark, no data: {', '.join(marks)}. Name a folder with files.")
    return RowFiles(data, files, marks, Counter(found.left_out.values()))


def refuse_caches(found: FoundFiles) -> None:
    """Raises `DeclarationError` for an input with a cache in it."""
    shard = next((name for name in found.names if name.endswith(".index") and _INDEX.search(name)), None)
    if shard is None:
        return
    inside = re.split(r"(?:^|/)snapshots/", shard)[0] if "snapshots/" in shard else shard.rpartition("/")[0]
    cache = (found.top + inside).rstrip("/")
    others = [name for name in found.names if inside and not name.startswith(f"{inside}/")]
    raw = (
        f"the other files by a glob, such as '{found.top}*{PurePosixPath(others[0]).suffix}'"
        if others
        else "the files that it was built from"
    )
    raise DeclarationError(
        f"{cache!r} is a cache, which beam-pipes has built, and not raw data. Look at it (beam-pipes inspect "
        f"{shlex.quote(cache)}) or load it (docs/loading.md); to build another one, name {raw}."
    )


def _refuse_versioned(found: FoundFiles) -> None:
    """Raises `DeclarationError` for files of a table that keeps older versions of its rows beside the current ones.

    The log may be hidden, or beside the named files: the directories above the first and the last Parquet file are
    searched for it.
    """
    named = next((name for name in found.names if "_delta_log/" in name), None)
    if named is not None:
        raise _versioned(named, "Delta")
    parquet = [name for name in found.names if name.endswith(".parquet")]
    storage, done = storage_for(found.top), set[str]()
    for name in dict.fromkeys([*parquet[:1], *parquet[-1:]]):
        if _HUDI_FILE.search(name):
            raise _versioned(name, "Hudi")
        above = (found.top + name).rpartition("/")[0]
        # On a store, directories above the named one are not looked at: each look is a request.
        while above and above not in done and (not is_remote(found.top) or f"{above}/".startswith(found.top)):
            done.add(above)
            for table, mark in _LOGS.items():
                if storage.is_directory(f"{above}/{mark}") and (
                    table != "Iceberg"
                    or any(each.endswith(".metadata.json") for each in storage.list(f"{above}/{mark}"))
                ):
                    raise _versioned(name, table)
            above = above.rpartition("/")[0]


def _versioned(name: str, table: str) -> DeclarationError:
    article = "an" if table == "Iceberg" else "a"
    return DeclarationError(
        f"{name!r} is of {article} {table} table, whose log says which of the files count: others hold older versions "
        f"of its rows. Export the table first, such as with {_EXPORTS[table]}."
    )


def format_of(data: Paths | RowFiles, format: str | None) -> str:
    """The format of files, by their suffixes unless given. Raises `DeclarationError`."""
    if format is not None:
        choice(format, of=FORMATS, what="format")
        packed = (file.name for file in files_of(data).files if format == "files" and codec_of(file.name) is not None)
        if (name := next(packed, None)) is not None:
            raise DeclarationError(
                f"whole files (--format files) are read as they are, and {name!r} is compressed. Unpack such files "
                "first, or leave out --format."
            )
        return format
    by_format: dict[str | None, str] = {}
    for file in files_of(data).files:
        suffixes = [suffix.lower() for suffix in Path(file.name).suffixes]
        if suffixes and suffixes[-1] in CODEC_OF_SUFFIX:
            suffixes.pop()
        by_format.setdefault(FORMAT_OF_SUFFIX.get(suffixes[-1]) if suffixes else None, file.name)
    if None in by_format:
        if unpack := _UNPACKED_BY.get(PurePosixPath(by_format[None]).suffix.lower()):
            raise DeclarationError(
                f"{by_format[None]!r} is compressed in a way that is not read; .gz, .bz2 and .zst are. Unpack it "
                f"first, beside the others: {unpack} FILE"
            )
        if convert := _CONVERTED_BY.get(PurePosixPath(by_format[None]).suffix.lower()):
            raise DeclarationError(
                f"{by_format[None]!r} is a table in a format that is not read; CSV, TSV, JSON Lines and Parquet are. "
                f"Convert it first: {convert}"
            )
        raise DeclarationError(
            f"{by_format[None]!r} has an unknown suffix; known are {', '.join(FORMAT_OF_SUFFIX)}, optionally followed "
            "by .gz, .bz2 or .zst. Name the files by a glob, such as 'corpus/**/*.jsonl', or say which format it is "
            f"(--format): {', '.join(FORMATS)}."
        )
    if len(by_format) > 1:
        listed = ", ".join(f"{kind} ({example!r})" for kind, example in by_format.items())
        raise DeclarationError(
            f"expected files of one format, found {listed}. Choose the files of one format by a glob, such as "
            "'corpus/**/*.jsonl'."
        )
    ((found, _),) = by_format.items()
    assert found is not None
    return found


def assign_source(module: Module, common: Common, data: Paths | RowFiles, kind: str, **options: object) -> None:
    """Assigns the source that reads files of a format, without Spark's marker files; several where inputs differ in
    their licenses or origins.
    """
    found = files_of(data)
    paths = [os.fspath(path) for path in ([found.paths] if isinstance(found.paths, str | os.PathLike) else found.paths)]
    module.use("beam_pipes.sources", FORMATS[kind])
    module.left_out.update(found.left_out(kind))
    sources = {
        name: call(FORMATS[kind], some[0] if len(some) == 1 else some, **options, exclude=found.exclude, **said)
        for name, (some, said) in common.sources(paths).items()
    }
    if len(sources) == 1:
        [source] = sources.values()
        module.assign("source", source)
    else:
        module.assign("source", call("JoinedSources", sources), "beam_pipes.sources")


# How files of delimited rows are read.


def reading_of(
    data: Paths | RowFiles,
    kind: str,
    *,
    delimiter: str | None = None,
    null: Sequence[str] = (),
    names: Sequence[str] | None = None,
    decimal: str | None = None,
    renamed: dict[int, tuple[str, str]] | None = None,
) -> dict[str, object]:
    """The source options that the first rows require: columns without a name, quotes of TSV.

    `names` are those of columns of files without a header; None where they cannot be given. `renamed` takes number →
    (name in the header, name given) of columns whose name is missing or repeated.

    Raises `DeclarationError` for CSV without commas, for a first row that is one of data, and for options that are not
    for these files.
    """
    text_kinds = ("csv", "tsv")
    delimiter = "\t" if delimiter == r"\t" else delimiter  # as a shell passes it
    for option, value, kinds in (
        ("delimiter", delimiter, ("csv",)),
        ("null", null, text_kinds),
        ("names", names, text_kinds),
        ("decimal", decimal, text_kinds),
    ):
        if value and kind not in kinds:
            raise DeclarationError(
                f"{option} is for {' and '.join(each.upper() for each in kinds)}, and these files are {kind}. Omit it."
            )
    if delimiter and len(delimiter.encode()) > 1:
        raise DeclarationError(
            f"delimiter should be one ASCII character, got {delimiter!r}. Put one between the fields first: "
            f"sed {shlex.quote(f's/{delimiter}/;/g')} FILE > NEW."
        )
    given: dict[str, object] = {"delimiter": delimiter, "null": list(null) or None, "decimal": decimal}
    if names:
        given |= {"columns": list(names), "header": False}
    options: dict[str, object] = {name: value for name, value in given.items() if value is not None}
    if kind not in ("csv", "tsv"):
        return options
    allow_fields_of(LOOKED_AT)
    for file in in_order(files_of(data).files):
        head = _head(file).removeprefix(b"\xef\xbb\xbf")
        if not head.strip():
            continue
        if delimiter is None:
            _check_delimiter(head, file.name, kind)
        text = head.decode("utf-8", "replace")
        if kind == "tsv" and _writer_quotes(text):
            options["quote"] = '"'
        separator = delimiter or ("," if kind == "csv" else "\t")
        quote = '"' if kind == "csv" or "quote" in options else None
        dialect = Dialect(delimiter=separator, quote=quote, quoted_newlines=quote is not None)
        rows = dialect.first_rows(head)
        header = next(iter(rows.fields), "")
        if isinstance(header, str) or names:
            return options  # the source reports the error
        if names is not None:
            _check_header(header, file.name)
            lines = head[: head.rfind(b"\n", 0, 1 << 16) + 1]
            _check_comment(dialect.rows(lines, 0, is_last=True).fields[:20], file.name)
        if (unique := unique_names(header)) != header:
            options["columns"] = unique
            pairs = enumerate(zip(header, unique, strict=True), start=1)
            (renamed if renamed is not None else {}).update(
                (number, pair) for number, pair in pairs if len({*pair}) > 1
            )
        return options
    return options


def _check_delimiter(content: bytes, name: str, kind: str) -> None:
    """Raises `DeclarationError` for a header without commas or tabs, but with another character between its fields.

    In TSV this may be the text of the only column, unless the next line has as many.
    """
    header, second = [line.decode(errors="replace") for line in [*content.split(b"\n", 2), b""][:2]]
    own, called = (",", "comma") if kind == "csv" else ("\t", "tab")
    other = max((each for each in ",;\t|" if each != own), key=header.count)
    if own in header or other not in header or (kind == "tsv" and header.count(other) != second.count(other)):
        return
    found = f"the header of {name!r} has no {called}, but {header.count(other)} times {other!r}."
    if kind == "tsv":
        raise DeclarationError(
            f"{found} Read it as CSV: format='csv', delimiter={other!r} (--format csv --delimiter {other!r})."
        )
    raise DeclarationError(f"{found} Name what is between its fields: delimiter={other!r} (--delimiter {other!r}).")


def _check_header(header: list[str], name: str) -> None:
    """Raises `DeclarationError` for a row of numbers that no header has: years and wavelengths are in order."""
    begins, advice = header[0].lstrip().lower(), ""
    if begins[:1] == "{" and ":" in begins:
        advice = "JSON: {}. Say so (--format json)."
    elif begins.startswith(("<!doctype", "<html", "<?xml")):
        advice = "a page of HTML or XML: {}. A server may have sent it instead of the data: download the file again."
    if advice:
        shown = f"{','.join(header)!r:.60}"
        raise DeclarationError(f"expected the first row of {name!r} to name the columns, found {advice.format(shown)}")
    numbers = [float(each) for each in header if _NUMBER.fullmatch(each.strip())]
    in_order = sorted(numbers)
    is_in_order = len({*numbers}) == len(numbers) and numbers in (in_order, in_order[::-1])
    if not is_in_order or (len(numbers) < 3 and not all(number.is_integer() for number in numbers)):
        raise DeclarationError(
            f"expected the first row of {name!r} to name the columns, found data: {', '.join(header[:6])}"
            f"{', …' if len(header) > 6 else ''}. Name the columns of a file without a header: names=[…] (--names "
            f"{','.join(f'c{number}' for number in range(1, min(len(header), 3) + 1))}{',…' * (len(header) > 3)})."
        )


def _check_comment(rows: Sequence[list[str] | str], name: str) -> None:
    """Raises `DeclarationError` for a first row that begins with #, if the second one names the columns: where all
    later rows have a number, it has none. Without numbers, a blank in its first field tells a comment.
    """
    if len(rows) < 3 or not str(rows[0][0]).startswith("#"):
        return
    where = [{n for n, each in enumerate(row) if not isinstance(row, str) and _NUMBER.fullmatch(each)} for row in rows]
    numbers = set.intersection(*where[2:])
    if numbers - where[1] or (not numbers and " " in rows[0][0]):
        raise DeclarationError(
            f"expected the first row of {name!r} to name the columns, found a comment: {','.join(rows[0])!r:.60}; the "
            f"second row seems to name them: {','.join(rows[1])!r:.60}. Take comments out first: "
            "sed '/^#/d' FILE > NEW. If the first row does name them, take its # away: sed '1s/^# *//' FILE > NEW."
        )


def _writer_quotes(text: str) -> bool:
    """Whether tab-separated text comes from a writer that quotes: rewriting it that way gives the same text.

    If quotes enclose only whole fields of one line, as plain text may too, the header must have them as well.
    """
    rows = list[list[str]]()
    try:
        for row in csv.reader(io.StringIO(text, ""), delimiter="\t", strict=True):
            rows.append(row)
    except csv.Error as error:
        if "unexpected end" not in str(error):  # the last row of the text may be truncated
            return False
    lines = [line.rstrip("\r") for line in text.split("\n")]
    if '"' not in text or not rows or len({len(row) for row in rows if row}) > 1:
        return False
    if all(name[:1] == name[-1:] == '"' for name in lines[0].split("\t")):
        return True
    written = io.StringIO()
    csv.writer(written, delimiter="\t", lineterminator="\n").writerows(rows)
    is_same = text.replace("\r\n", "\n").startswith(written.getvalue().rstrip("\n").replace("\r\n", "\n"))
    return is_same and ('""' in text or any(len(line.split("\t")) != len(rows[0]) for line in lines if line))


# The first rows.


@dataclass
class Sample:
    """The first rows of a file, and the first invalid one."""

    file: FoundFile
    content: bytes
    kind: str
    reading: Mapping[str, object]

    @functools.cached_property
    def numbers(self) -> Mapping[str, Numbers] | None:
        """Column → its values, of CSV or TSV that holds nothing but numbers; None for all else."""
        if self.kind not in ("csv", "tsv") or self.reading.keys() - {"delimiter", "quote"}:
            return None
        source: Any = CSV if self.kind == "csv" else TSV
        dialect: Dialect = source(self.file.path, **self.reading).dialect
        return dialect.numbers_by_column(self.content)

    @functools.cached_property
    def _read(self) -> tuple[list[RecordBatch], BadRecord | SourceError | None]:
        batches: list[RecordBatch] = []
        with tempfile.TemporaryDirectory(prefix="beam-pipes-") as directory:
            name = PurePosixPath(self.file.name)
            # Under its own name, which appears in messages, without the suffix of the compression already removed.
            head = Path(directory) / (name.name if codec_of(self.file.name) is None else name.stem)
            head.write_bytes(self.content)
            source = {"csv": CSV, "json": JSONLines, "tsv": TSV, "tar": Tar}[self.kind](head, **self.reading)
            try:
                for shard in source.plan(target_shard_bytes=1 << 30).shards:
                    batches += source.read(shard, batch_records=LOOKED_AT)
            except SourceError as error:
                if self.kind != "tar":  # which would end in the middle of a sample
                    raise
                return batches, error
        return batches, next((row for batch in batches for row in batch.bad), None)

    @property
    def batches(self) -> list[RecordBatch]:
        return self._read[0]

    @property
    def bad(self) -> BadRecord | SourceError | None:
        """The first invalid row; None in files of nothing but numbers, which have none."""
        return None if self.numbers is not None else self._read[1]

    @functools.cached_property
    def rows(self) -> list[Mapping[str, Any]]:
        return [row for batch in self.batches for row in batch.values]

    @functools.cached_property
    def columns(self) -> dict[str, list[Any]]:
        """Column → its values in the rows that have it."""
        tables = [batch.table or Table.of_rows(batch.values) for batch in self.batches if len(batch)]
        there = [table for table in tables if table is not None]
        if len(there) == len(tables) and len({tuple(table.columns) for table in there}) == 1:
            return {name: [*chain.from_iterable(table.values(name) for table in there)] for name in there[0].columns}
        return columns_of_rows(self.rows)

    def __len__(self) -> int:
        return sum(map(len, self.batches)) if self.numbers is None else len([*self.numbers.values()][0].values)

    def place(self, number: int) -> str:
        """The id of a row: `a.csv@40`."""
        for batch in self.batches:
            if number < len(batch):
                return f"{self.file.name}@{batch.position(number)}"
            number -= len(batch)
        raise IndexError(number)


def sampled(data: Paths | RowFiles, kind: str, **reading: object) -> Iterator[Sample]:
    """The first rows of the first file, of the last one, then of the others, up to 64 MiB in all.

    For a tar they are its samples.
    """
    num_bytes = 0
    for file in in_order(files_of(data).files):
        content = _head(file, is_lines=kind != "tar")
        num_bytes += len(content)
        yield Sample(file, content, kind, reading)
        if num_bytes >= _LOOKED_AT_IN_ALL:
            return


def in_order(files: Sequence[FoundFile]) -> list[FoundFile]:
    """Files in the order in which they are looked at: the first, the last, the others."""
    return [files[0], *files[-1:], *files[1:-1]] if len(files) > 1 else [*files]


def _head(file: FoundFile, *, is_lines: bool = True) -> bytes:
    """The first bytes of a file, or its first lines. A row with a newline in it may be truncated and omitted."""
    chunks = decompressed(read_range(file.path, file.name, 0, file.size), codec=codec_of(file.name), file=file.name)
    head = b""
    for chunk in chunks:
        head += chunk
        if is_lines:
            refuse_unless_text(file.name, head)
        if len(head) >= LOOKED_AT:
            return (head[: head.rfind(b"\n", 0, LOOKED_AT) + 1] if is_lines else b"") or head
    return head
