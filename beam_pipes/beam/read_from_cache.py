"""Sources for any Beam pipeline: a cache (`ReadFromCache`), or a source of a build (`ReadFromSource`).

`ReadFromCache` and `WriteToCache` as Beam YAML calls them: `providers.yaml` beside this file names the functions at the
end.
"""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import apache_beam as beam
from apache_beam.io import iobase
from apache_beam.io.range_trackers import OffsetRangeTracker
from apache_beam.metrics import Metrics
from apache_beam.options.pipeline_options import GoogleCloudOptions
from apache_beam.typehints.row_type import RowTypeConstraint

from beam_pipes.beam.lower import DEAD_LETTERS, Element, FailedElement, Lowered, TypeHint, hint_of
from beam_pipes.beam.write_to_cache import WriteToCache
from beam_pipes.building.declaration import DEFAULT_TARGET_SHARD_BYTES
from beam_pipes.building.reading import SOURCE, unparsable
from beam_pipes.building.shard_task import Numbered
from beam_pipes.cache.reader import open_split
from beam_pipes.cache.split import Split
from beam_pipes.checks import choice
from beam_pipes.engine.execute import BUILD_POLICIES, OnError
from beam_pipes.engine.graph import brief
from beam_pipes.engine.records import Failure
from beam_pipes.errors import DeclarationError, SourceError
from beam_pipes.format.spec import ExampleSpec, FeatureSpec, Record
from beam_pipes.sources.digests import DigestCache
from beam_pipes.sources.source import Source, SourceShard
from beam_pipes.storage.checked_json import JsonValue
from beam_pipes.storage.local import directory_path


class ReadFromCache(beam.PTransform):  # type: ignore[misc]
    """Reads a split of a cache in parallel, each worker a range of its records.

        pipeline | ReadFromCache("cache/train", columns=["user"])  →  {"user": "ann"}, {"user": "bob"}, …

    Elements are those of `split[i]`: dicts of arrays and scalars, messages, or bytes; checksums are checked, and
    taken-down records are omitted. Of a cache on an object store, a worker requests the bytes that its range covers,
    4 MiB at a time, and copies no shard, unless `cache` was opened with a `local_directory`. The snapshot is the one
    published when the pipeline is constructed; a job whose workers find another one fails with `StaleCacheError`.

    Args:
        cache: a `Split`, or its path, such as `gs://bucket/agg/train`.
        split: the split, if the path is that of a cache with several.
        columns: the features to keep; all by default.
        as_rows: give `beam.Row`s with Python values (lists for arrays) and a schema, for SQL, data frames and YAML.

    Raises `CacheNotFoundError` if there is no such cache or split, `DeclarationError` for a column that it lacks.
    """

    def __init__(
        self,
        cache: Split | str | os.PathLike[str],
        split: str | None = None,
        *,
        columns: Sequence[str] | None = None,
        as_rows: bool = False,
    ) -> None:
        super().__init__()
        found = cache if isinstance(cache, Split) else open_split(cache, split)
        if columns is not None or as_rows:
            known = list(found.spec)
            missing = [name for name in columns or () if name not in known]
            if missing:
                raise DeclarationError(
                    f"ReadFromCache: {found!r} has no feature {missing[0]!r}. It has: {', '.join(known)}."
                )
            columns = list(columns or known)
        self._rows = _row_type(found.spec, columns or ()) if as_rows else None
        self._source = _SplitSource(found, columns, as_rows=as_rows)

    def expand(self, root: beam.Pipeline) -> beam.PCollection:
        read = beam.io.Read(self._source)
        return root | "Read" >> (read if self._rows is None else read.with_output_types(self._rows))


class _SplitSource(iobase.BoundedSource):  # type: ignore[misc]
    """The records of a split as a range that a runner may split anywhere, even while it is read."""

    def __init__(self, split: Split, columns: Sequence[str] | None, *, as_rows: bool) -> None:
        self._split = split
        self._columns = columns
        self._as_rows = as_rows

    def estimate_size(self) -> int:
        return self._split.num_bytes

    def split(
        self, desired_bundle_size: int, start_position: int | None = None, stop_position: int | None = None
    ) -> Iterator[iobase.SourceBundle]:
        start, stop = start_position or 0, len(self._split) if stop_position is None else stop_position
        bytes_a_record = max(1, self._split.num_bytes // max(1, len(self._split)))
        step = max(1, desired_bundle_size // bytes_a_record)
        for first in range(start, stop, step):
            last = min(stop, first + step)
            yield iobase.SourceBundle((last - first) * bytes_a_record, self, first, last)

    def get_range_tracker(self, start_position: int | None, stop_position: int | None) -> OffsetRangeTracker:
        return OffsetRangeTracker(start_position or 0, len(self._split) if stop_position is None else stop_position)

    def read(self, range_tracker: OffsetRangeTracker) -> Iterator[Element]:
        removed = set(self._split.removed_rows.tolist())
        first, last = range_tracker.start_position(), range_tracker.stop_position()
        stream = self._split.stream(first, last)
        for index in range(first, last):
            if not range_tracker.try_claim(index):
                return
            record = None if stream is None else next(stream)
            if index not in removed:
                yield self._element(self._split[index] if record is None else record)

    def _element(self, record: Record) -> Element:
        if self._columns is None:
            return record
        chosen = {name: record[name] for name in self._columns}
        if not self._as_rows:
            return chosen
        return beam.Row(
            **{name: value.tolist() if hasattr(value, "tolist") else value for name, value in chosen.items()}
        )


class ReadFromSource(beam.PTransform):  # type: ignore[misc]
    """Reads a source of a build in a pipeline, which can do more with its records than a build, such as grouping them.

        (
            pipeline
            | ReadFromSource(TextLines("clicks.tsv"))     →  "ann 3", "bob 1", "ann 5"
            | lower(parse)                                →  ("ann", 3), ("bob", 1), ("ann", 5)
            | beam.GroupByKey()                           →  ("ann", [3, 5]), ("bob", [1])
            | lower(summarize)                            →  {"user": "ann", "counts": [3, 5]}, …
            | WriteToCache("cache", features=features, key="user")
        )

    The source is planned when the pipeline is constructed, as in a build; workers read whole source shards, and detect
    input that has changed since.

    Args:
        source: `TextLines`, `Parquet` …: any source of `beam_pipes.sources`.
        with_ids: give pairs (record id, value). An id, such as `books/emma.txt@1024`, is the same for every runner; a
            transform that keeps it can make it the `key` of `WriteToCache`, whose record ids then name the source.
        on_error: what happens to a record that cannot be parsed: "fail" (the default), "dead_letter", which gives a
            `Lowered` with a `FailedElement` for its bytes, or "drop".
        target_shard_bytes: input bytes of one source shard.
        scratch: a directory that workers see. What they read of a large input is written there: services take requests
            of 10 MB, which 70,000 files would fill. Default: the pipeline's `temp_location`.

    Raises `SourceError` for input that is missing or unreadable, `DeclarationError` for options that are malformed; in
    the job `StageError` for a record that cannot be parsed.
    """

    def __init__(
        self,
        source: Source,
        *,
        with_ids: bool = False,
        on_error: OnError = "fail",
        target_shard_bytes: int = DEFAULT_TARGET_SHARD_BYTES,
        scratch: str | os.PathLike[str] | None = None,
    ) -> None:
        super().__init__()
        if not isinstance(source, Source):
            raise DeclarationError(
                f"ReadFromSource: expected a source, such as TextLines('texts'), got {brief(source)}."
            )
        choice(on_error, of=BUILD_POLICIES, what="ReadFromSource: on_error")
        self._shards = source.plan(target_shard_bytes=target_shard_bytes, digests=DigestCache()).shards
        self._scratch = scratch
        self._reads = _ReadShard(source, with_ids=with_ids, on_error=on_error)
        self._type = tuple[str, hint_of(source.output_type)] if with_ids else hint_of(source.output_type)  # type: ignore[misc]
        self._keeps_failed = on_error == "dead_letter"

    def expand(self, root: beam.Pipeline) -> beam.PCollection:
        tasks = [shard.to_json() for shard in self._shards]
        size = sum(len(json.dumps(task)) for task in tasks)
        scratch = self._scratch or root.pipeline.options.view_as(GoogleCloudOptions).temp_location
        directory: str | None = None
        if size > _SENT_BYTES and scratch is not None:
            directory = f"{directory_path(scratch)}/{secrets.token_hex(8)}"
            _shards(directory).write(self._shards)
        elif size > _LARGEST_REQUEST and type(root.pipeline.runner).__name__ not in _IN_PROCESS:
            raise DeclarationError(
                f"ReadFromSource: the job's request would hold {size / 1e6:.0f} MB about {len(tasks)} source shards, "
                "and services take 10 MB. Give scratch='gs://bucket/temp', a directory that the workers see, or the "
                "pipeline's --temp_location."
            )
        shards = (
            root
            | "Source shards" >> beam.Create(tasks if directory is None else range(len(tasks)), reshuffle=False)
            | beam.Reshuffle()
            | "Source shard" >> beam.ParDo(_ReadTask(directory))
        )
        reads = beam.ParDo(self._reads)
        if not self._keeps_failed:
            return shards | "Read" >> reads.with_output_types(self._type)
        found = shards | "Read" >> reads.with_outputs(DEAD_LETTERS, main="records")
        found["records"].element_type = self._type
        return Lowered(found["records"], found[DEAD_LETTERS])


# Source shards travel in the job's request up to this many bytes, and never above the second.
_SENT_BYTES = 256 << 10
_LARGEST_REQUEST = 8 << 20
# These runners start work in this process and send no request.
_IN_PROCESS = frozenset({"FnApiRunner", "DirectRunner", "SwitchingDirectRunner", "BundleBasedDirectRunner"})


class _ReadTask(beam.DoFn):  # type: ignore[misc]
    """What a job stores for a source shard, its number or all of it → the shard."""

    def __init__(self, directory: str | None) -> None:
        self._directory = directory

    def setup(self) -> None:
        self._shards = None if self._directory is None else _shards(self._directory)

    def process(self, task: Element) -> Iterator[SourceShard]:
        yield SourceShard.from_json(task) if self._shards is None else self._shards[task]


def _shards(directory: str) -> Numbered[SourceShard]:
    return Numbered(
        directory=directory,
        what="source shards of the job",
        error=SourceError,
        to_json=SourceShard.to_json,
        from_json=SourceShard.from_json,
    )


class _ReadShard(beam.DoFn):  # type: ignore[misc]
    """Source shard → its values, in order."""

    def __init__(self, source: Source, *, with_ids: bool, on_error: OnError) -> None:
        self._source = source
        self._with_ids = with_ids
        self._on_error = on_error

    def process(self, shard: SourceShard) -> Iterator[Element]:
        for records in self._source.read(shard):
            for row in records.bad:
                if self._on_error == "fail":
                    raise unparsable(row)
                if self._on_error == "dead_letter":
                    failed = Failure.of(row.error, stage=SOURCE, dropped=False)
                    yield beam.pvalue.TaggedOutput(DEAD_LETTERS, FailedElement.of(row.raw, failed))
                else:
                    Metrics.counter(SOURCE, f"{SOURCE}/dropped/error/{type(row.error).__name__}").inc()
            if self._with_ids:
                yield from ((records.record_id(index), value) for index, value in enumerate(records.values))
            else:
                yield from records.values


def _row_type(spec: ExampleSpec, columns: Sequence[str]) -> RowTypeConstraint:
    """The schema of rows: Python's types, and a sequence for each dimension."""
    return RowTypeConstraint.from_fields([(name, _type_of(spec[name])) for name in columns])


def _type_of(feature: FeatureSpec) -> TypeHint:
    known = {"str": str, "bytes": bytes, "bool": bool}
    type_: TypeHint = known.get(feature.dtype, int if "int" in feature.dtype else float)
    for _ in feature.shape:
        type_ = Sequence[type_]
    return type_


#: The provider file of Beam YAML, for `providers: [{include: …}]`.
YAML_PROVIDERS = str(Path(__file__).with_name("providers.yaml"))


def read_from_cache_in_yaml(path: str, split: str = "train", columns: list[str] | None = None) -> beam.PTransform:
    """Reads a split of a cache as rows with a schema.

    Args:
        path: the directory of the cache.
        split: the name of the split.
        columns: the features to keep; all by default.
    """
    return ReadFromCache(path, split, columns=columns, as_rows=True)


def write_to_cache_in_yaml(
    path: str,
    features: dict[str, JsonValue] | None = None,
    key: str | None = None,
    splits: dict[str, float] | None = None,
    num_shards: int | None = None,
    name: str = "collection",
    seed: int = 0,
    allow_empty: bool = False,
    error_handling: dict[str, str] | None = None,
    max_bad: float | None = None,
) -> beam.PTransform:
    """Writes rows to a cache, and returns one row once it is published: its path, and the id of its manifest.

    Args:
        path: the directory of the cache.
        features: name → dtype (`int32`) or `{dtype: int32, shape: [null]}`; those of the schema by default.
        key: the name of a feature; records of one key go to one split and one shard.
        splits: split → share of keys, `{train: 0.9, test: 0.1}`; all to `train` by default.
        num_shards: files of each split; as many as the records need by default.
        name: what the files are called.
        seed: another seed, another choice of splits.
        allow_empty: publish even without any records.
        error_handling: `output: NAME` gives rows that cannot be stored there; without it they end the job.
        max_bad: how many rows may go there before nothing is published: a count, or a share (`0.1`); any by default.
    """
    spec = features and ExampleSpec.from_json(
        {feature: {"dtype": each} if isinstance(each, str) else each for feature, each in features.items()}
    )
    writer = WriteToCache(
        path,
        features=spec or None,
        key=key,
        splits=splits or ("train",),
        num_shards=num_shards,
        name=name,
        seed=seed,
        allow_empty=allow_empty,
        on_error="fail" if error_handling is None else "dead_letter",
        max_bad=max_bad,
    )
    return _WriteInYaml(writer, directory_path(path), error_handling)


class _WriteInYaml(beam.PTransform):  # type: ignore[misc]
    """`WriteToCache` whose outputs are rows with a schema, under the names that Beam YAML expects."""

    def __init__(self, writer: WriteToCache, path: str, error_handling: Mapping[str, str] | None) -> None:
        super().__init__()
        self._writer = writer
        self._path = path
        self._error_handling = error_handling

    def expand(self, rows: beam.PCollection) -> beam.PCollection:
        path = self._path
        made = rows | "Write" >> self._writer
        published = made.published | "Published" >> beam.Map(
            lambda manifest: beam.Row(path=str(path), manifest=str(manifest))
        ).with_output_types(RowTypeConstraint.from_fields([("path", str), ("manifest", str)]))
        if self._error_handling is None:
            return published
        failed = made.dead_letters | "Failed" >> beam.Map(
            lambda letter: beam.Row(element=letter.record, msg=letter.message, stack=letter.error_type)
        ).with_output_types(RowTypeConstraint.from_fields([("element", bytes), ("msg", str), ("stack", str)]))
        return {"good": published, self._error_handling["output"]: failed}
