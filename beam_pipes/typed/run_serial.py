"""Runs a pipeline over an iterator in this process: `run_pipeline_serial` to files, `load_pipeline` to memory.

Iterators over input data: files of a directory, records of a TFRecord file.
"""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

from google.protobuf.message import DecodeError, Message

from beam_pipes.engine.account import Account
from beam_pipes.engine.execute import GraphRunner
from beam_pipes.engine.graph import brief, graph_of, mismatch
from beam_pipes.engine.records import Batch, OneRecord
from beam_pipes.engine.statistics import Statistic
from beam_pipes.errors import DeclarationError, InvalidTransformOutputException, SourceError, TypeMismatchException
from beam_pipes.format.framing import RecordWriter, read_records
from beam_pipes.format.spec import Record
from beam_pipes.sources.record_batch import content_of_value
from beam_pipes.typed.pipeline import Pipeline, signature_of
from beam_pipes.typed.random_partition import RandomPartition


class LoadedDict(dict[str, list[Any]]):
    """Output name → values, as `load_pipeline` returns it; the merged statistics are in `.statistics`."""

    statistics: list[Statistic]


class LoadedList(list[Any]):
    """The outputs of a pipeline with a single output type; the merged statistics are in `.statistics`."""

    statistics: list[Statistic]


def load_pipeline(pipeline: Pipeline, input_iterator: Iterable[object]) -> LoadedDict | LoadedList:
    """Runs `pipeline` over the inputs and keeps the outputs in memory.

    Returns a dict of lists, or a list if the pipeline has a single output type; both carry the statistics, merged
    over all inputs, in the attribute `statistics`.

        load_pipeline(SplitWords(), ['to be', 'or not'])  →  ['to', 'be', 'or', 'not']

    A record is identified by its number here, and by file and position in a build: stages that draw by record (`rng()`)
    draw the same in every call of `load_pipeline`, but not what they draw in a build. `RandomPartition` goes by the
    content.
    """
    _check_stage(pipeline, "load_pipeline")
    account = Account()
    names = pipeline.output_type if isinstance(pipeline.output_type, Mapping) else [pipeline.name]
    outputs: dict[str, list[object]] = {name: [] for name in names}
    for name, value in _run(pipeline, input_iterator, account):
        outputs[name].append(value)
    loaded: LoadedDict | LoadedList
    loaded = LoadedDict(outputs) if isinstance(pipeline.output_type, Mapping) else LoadedList(outputs[pipeline.name])
    loaded.statistics = account.statistics()
    return loaded


def run_pipeline_serial(
    pipeline: Pipeline,
    input_iterator: Iterable[object],
    output_dir: str | os.PathLike[str],
    output_file_base: str | None = None,
) -> list[Statistic]:
    """Runs `pipeline` over the inputs and saves the outputs as TFRecord files of protocol buffers, or of any objects
    with a method `SerializeToString` that gives bytes.

    Each output goes to `<output_dir>/<output_file_base>_<name>.tfrecord` (without a base: `<name>.tfrecord`); a single
    output type takes the pipeline's name. The files appear when everything is written: after an exception there are
    none, or only earlier ones. Returns the statistics, merged over all inputs.

    Raises:
        DeclarationError: an output type of the pipeline has no `SerializeToString`; found before anything is read.
        InvalidTransformOutputException: `SerializeToString` gave something other than bytes.
    """
    _check_stage(pipeline, "run_pipeline_serial")
    output_type = pipeline.output_type
    types = output_type if isinstance(output_type, Mapping) else {pipeline.name: output_type}
    for name, type_ in types.items():
        if not callable(getattr(type_, "SerializeToString", None)):
            raise DeclarationError(
                f"{pipeline.name}: run_pipeline_serial saves protocol buffers, and the output {name!r} is "
                f"{type_.__name__}, which has no SerializeToString. Use load_pipeline, or build a cache, which stores "
                "examples too.",
                stage=pipeline.name,
            )
        if os.path.basename(name) != name:
            raise DeclarationError(
                f"{pipeline.name}: the output {name!r} names a file and should hold no path separator. Rename it.",
                stage=pipeline.name,
            )
    directory = Path(output_dir).expanduser()
    directory.mkdir(parents=True, exist_ok=True)
    prefix = "" if output_file_base is None else f"{output_file_base}_"
    finals = {name: directory / f"{prefix}{name}.tfrecord" for name in types}
    partials = {name: final.with_name(f".{final.name}.tmp-{os.getpid()}") for name, final in finals.items()}
    account = Account()
    try:
        with contextlib.ExitStack() as stack:
            files = {name: stack.enter_context(open(partial, "wb")) for name, partial in partials.items()}
            writers = {name: RecordWriter(file) for name, file in files.items()}
            for name, value in _run(pipeline, input_iterator, account):
                writers[name].write(_serialized(value, pipeline, name))
            for name, file in files.items():
                writers[name].close()
                file.flush()
                os.fsync(file.fileno())
        for name, final in finals.items():
            os.replace(partials[name], final)
    finally:
        for partial in partials.values():
            partial.unlink(missing_ok=True)
    return account.statistics()


def _check_stage(pipeline: Pipeline, caller: str) -> None:
    if isinstance(pipeline, type):
        name = pipeline.__name__
        raise DeclarationError(f"{caller} takes an instance of a Pipeline, got the class {name}. Write {name}().")
    if not hasattr(pipeline, "transform"):
        raise DeclarationError(f"{caller} takes a Pipeline, got {brief(pipeline)}. Join stages with a DAGPipeline.")
    signature_of(pipeline, "input_type")
    signature_of(pipeline, "output_type")


def _serialized(value: Record, pipeline: Pipeline, name: str) -> bytes:
    made = value.SerializeToString(deterministic=True) if isinstance(value, Message) else value.SerializeToString()
    if not isinstance(made, bytes):
        raise InvalidTransformOutputException(
            f"{pipeline.name}: SerializeToString of the output {name!r} ({type(value).__name__}) should give bytes, "
            f"got {brief(made)}. Encode it: text.encode().",
            stage=pipeline.name,
            expected="bytes",
            found=type(made),
        )
    return made


def _run(pipeline: Pipeline, inputs: Iterable[object], account: Account) -> Iterator[tuple[str, object]]:
    """Yields (output name, value); books every record in `account`. Records are identified by their position."""
    graph = graph_of(pipeline, default_output=pipeline.name)
    runner = GraphRunner(graph)
    divides = any(isinstance(unit.stage, RandomPartition) for unit in graph.units)
    for position, value in enumerate(inputs):
        problem = mismatch(value, graph.input_type)
        if problem is not None:
            raise TypeMismatchException(f"{pipeline.name}: as input {position}, {problem}.", stage=pipeline.name)
        # Before stages run, because they may change the value.
        content = content_of_value(value) if divides else b""
        batch = Batch(OneRecord(value, functools.partial(str, position), functools.partial(bytes, content)), account)
        runner.run(batch)
        for name, column in runner.outputs(batch).items():
            for output in column[0]:
                yield name, output


def file_iterator(
    root_dir: str | os.PathLike[str], extension: str | None = None, recurse: bool = True
) -> Iterator[bytes]:
    """Yields the raw bytes of each file under `root_dir`, in sorted order of their paths.

    `extension` keeps only files that end in it, with or without its dot, in upper or lower case: `mid` and `.MID` both
    take `a.mid` and `B.MID`. `recurse=False` stays in `root_dir` itself.
    Raises `SourceError` if `root_dir` is not a directory.
    """
    root = Path(root_dir)
    if not root.is_dir():
        raise SourceError(
            f"file_iterator expects a directory, and {str(root)!r} is not one. Check root_dir.", path=str(root)
        )
    suffix = "." + extension.lstrip(".").lower() if extension else ""
    names = root.rglob("*") if recurse else root.glob("*")
    for path in sorted(names, key=lambda path: path.relative_to(root).parts):
        if path.is_file() and path.name.lower().endswith(suffix):
            yield path.read_bytes()


M = TypeVar("M", bound=Message)


def tf_record_iterator(tfrecord_file: str | os.PathLike[str], proto: type[M]) -> Iterator[M]:
    """Yields the records of a TFRecord file as messages of the class `proto`.

    Raises `CorruptRecordError`, with file and offset, if a length or a checksum is wrong, and `SourceError` if a
    record is not such a message.
    """
    for position, record in enumerate(read_records(tfrecord_file)):
        try:
            message = proto.FromString(record)
        except DecodeError as error:
            raise SourceError(
                f"record {position} of {os.fspath(tfrecord_file)} should be a {proto.__name__}, but cannot be parsed "
                f"as one: {error}. Pass the message class that the file was written with.",
                path=os.fspath(tfrecord_file),
                position=position,
            ) from error
        yield message
