"""tensorflow-transform's analyzers over one source shard, and the merged results of all shards.

A *preprocessing_fn* names analyzers (`tft.scale_to_z_score` needs a mean and a variance), which have to see all data.
tensorflow-transform runs them as a Beam pipeline whose accumulators it can save and reload entry by entry, its
*analyzer cache*. So one pipeline per source shard ends in that shard's entries (`analyze`), and one pipeline turns the
entries of all into the result (`merge`). Both run on Beam's in-process runner, in the order of source shards, wherever
the build itself runs: the transform function is the same on every runner.

An analysis is a TFRecord file: a JSON header, then the values of each entry, then batches of inputs where a later
phase needs them (`scale_to_z_score` of something that was itself scaled).
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions

from beam_pipes.extras import TfTensor, require
from beam_pipes.format.framing import RecordWriter, read_records

if TYPE_CHECKING:
    import pyarrow as pa

PreprocessingFn = Callable[[dict[str, TfTensor]], Mapping[str, object]]

# By its own name: `DirectRunner` first looks for another runner on the network.
_RUNNER = "apache_beam.runners.portability.fn_api_runner.FnApiRunner"

# All source shards are one tensorflow-transform dataset, so that its graphs do not grow with their number.
_DATASET = "inputs"
_INPUTS = "inputs"
_PURPOSE = "the analysis of a preprocessing_fn"


class Inputs(NamedTuple):
    """The form of inputs: name → `tf.io` feature, and the schema of their record batches."""

    feature_spec: Mapping[str, object]
    arrow_schema: pa.Schema


def analyze(preprocessing_fn: PreprocessingFn, inputs: Inputs, batches: str, target: str) -> None:
    """Writes what the analyzers of a preprocessing_fn find in one source shard, an analysis, to the path `target`.

    `batches` is the path of an Arrow stream.
    """
    with tempfile.TemporaryDirectory(prefix="beam-pipes-tft-") as scratch, RecordWriter(target) as writer:
        analysis = _Analysis(preprocessing_fn, inputs, scratch)
        keys = analysis.entry_keys()
        if next(read_batches(batches), None) is None:
            keys = []  # an empty shard contributes nothing
        if keys:
            with _pipeline() as pipeline:
                data = pipeline | "Inputs" >> beam.Create([batches], reshuffle=False) | beam.FlatMap(read_batches)
                entries = dict(analysis.entries(pipeline, data))
                for number, key in enumerate(keys):
                    _ = (
                        entries[key]
                        | f"List {number}" >> beam.combiners.ToList()
                        | f"Write {number}" >> beam.Map(_write_values, path=_entry_path(scratch, number))
                    )
        paths = [_entry_path(scratch, at) for at in range(len(keys))]
        counts = [[key.hex(), sum(1 for _ in read_records(path))] for key, path in zip(keys, paths, strict=True)]
        writer.write(json.dumps({"entries": counts}).encode())
        for path in paths:
            for value in read_records(path):
                writer.write(value)
        if analysis.needs_inputs(keys):
            for batch in read_batches(batches):
                writer.write(batch.serialize().to_pybytes())


def merge(
    preprocessing_fn: PreprocessingFn, inputs: Inputs, analyses: Sequence[str], target: str, *, scratch: str
) -> None:
    """Writes the transform function of all analyses into the directory `target`: `transform_fn` (a SavedModel) and
    `transformed_metadata`, as `tft.TFTransformOutput` reads them. Temporary files go into `scratch`."""
    tft_beam = require("tensorflow_transform.beam", purpose=_PURPOSE)
    analysis = _Analysis(preprocessing_fn, inputs, scratch)
    keys = analysis.entry_keys()
    with _pipeline() as pipeline:
        paths = pipeline | "Analyses" >> beam.Create(list(analyses), reshuffle=False)
        tags = [_tag(at) for at in range(len(keys))]
        read = paths | "Read" >> beam.ParDo(_ReadAnalysis(keys, inputs)).with_outputs(*tags, _INPUTS)
        # Without entries there is nothing to merge; analyzers then see that there are no inputs.
        known = any(json.loads(next(read_records(path)))["entries"] for path in analyses)
        data = read[_INPUTS] if analysis.needs_inputs(keys) or not known else None
        cache = {key: read[tag] for key, tag in zip(keys, tags, strict=True)} if known else {}
        _ = analysis.transform_fn(pipeline, data, cache) | "Write" >> tft_beam.WriteTransformFn(target)


class _Analysis:
    """A preprocessing_fn, traced for its inputs."""

    def __init__(self, preprocessing_fn: PreprocessingFn, inputs: Inputs, scratch: str) -> None:
        self._preprocessing_fn = preprocessing_fn
        self._scratch = scratch
        tft_beam = require("tensorflow_transform.beam", purpose=_PURPOSE)
        schema_utils = require("tensorflow_transform.tf_metadata.schema_utils", purpose=_PURPOSE)
        adapter = require("tfx_bsl.tfxio.tensor_adapter", purpose=_PURPOSE)
        representation = require("tfx_bsl.tfxio.tensor_representation_util", purpose=_PURPOSE)
        self._tft_beam = tft_beam
        self._builder = require("tensorflow_transform.beam.analysis_graph_builder", purpose=_PURPOSE)
        self._key = tft_beam.analyzer_cache.DatasetKey(_DATASET)
        schema = schema_utils.schema_from_feature_spec(inputs.feature_spec)
        self._config = adapter.TensorAdapterConfig(
            inputs.arrow_schema, representation.InferTensorRepresentationsFromMixedSchema(schema)
        )
        self._specs = adapter.TensorAdapter(self._config).TypeSpecs()

    def entry_keys(self) -> list[bytes]:
        """The entries of the analyzer cache that have the same keys in another process, sorted.

        A key is a digest of the traced graph. If it changes between traces, with TensorFlow's numbers of functions, its
        entry could not be found again: inputs are kept instead.
        """
        first, second = (
            self._builder.get_analysis_cache_entry_keys(self._preprocessing_fn, self._specs, [self._key], False)
            for _ in range(2)
        )
        return sorted(first & second)

    def needs_inputs(self, keys: Iterable[bytes]) -> bool:
        """Whether inputs are read although all of these entries are there."""
        cache = {self._key: self._tft_beam.analyzer_cache.DatasetCache(dict.fromkeys(keys, True), None)}
        keys_read = self._builder.get_analysis_dataset_keys(
            self._preprocessing_fn, self._specs, [self._key], cache, False
        )
        return bool(keys_read)

    def entries(self, pipeline: beam.Pipeline, data: beam.PCollection) -> Iterator[tuple[bytes, beam.PCollection]]:
        """The entries of `data` alone, each with a PCollection of its values.

        Does what `AnalyzeDatasetWithCache` does up to the entries, without the SavedModel and later phases, which are
        meaningless on part of the data and may fail on it.
        """
        common = require("tensorflow_transform.beam.common", purpose=_PURPOSE)
        nodes = require("tensorflow_transform.nodes", purpose=_PURPOSE)
        graph_tools = require("tensorflow_transform.graph_tools", purpose=_PURPOSE)
        impl_helper = require("tensorflow_transform.impl_helper", purpose=_PURPOSE)
        annotators = require("tensorflow_transform.annotators", purpose=_PURPOSE)
        graph, given, outputs = impl_helper.trace_preprocessing_function(
            self._preprocessing_fn, self._specs, use_tf_compat_v1=False, base_temp_dir=self._scratch
        )
        annotators.clear_asset_annotations(graph)
        visitor = common.ConstructBeamPipelineVisitor(
            common.ConstructBeamPipelineVisitor.ExtraArgs(
                base_temp_dir=self._scratch,
                pipeline=pipeline,
                flat_pcollection=None,
                pcollection_dict={self._key: data},
                tf_config=None,
                graph=graph,
                input_signature=given,
                input_specs=self._specs,
                input_tensor_adapter_config=self._config,
                use_tf_compat_v1=False,
                cache_pcoll_dict={},
                preprocessing_fn=self._preprocessing_fn,
                analyzers_fingerprint=graph_tools.get_analyzers_fingerprint(graph, given),
                save_options=None,
            )
        )
        traverser = nodes.Traverser(visitor)
        _, found, _ = self._builder.build(graph, given, outputs, [self._key], cache_dict={})
        for key, node in sorted(found[self._key].items()):
            yield key, traverser.visit_value_node(node)

    def transform_fn(self, pipeline: object, data: object, cache: Mapping[bytes, object]) -> object:
        """The transform function from the entries in `cache`, and from `data` if those are not enough."""
        known = {self._key: self._tft_beam.analyzer_cache.DatasetCache(cache, None)} if cache else {}
        with self._tft_beam.Context(temp_dir=self._scratch):
            transform_fn, _ = ({self._key: data}, known, self._config) | (
                self._tft_beam.AnalyzeDatasetWithCache(self._preprocessing_fn, pipeline=pipeline)
            )
        return transform_fn


class _ReadAnalysis(beam.DoFn):  # type: ignore[misc]
    """The path of an analysis → the values of its entries, and its inputs, each under a tag."""

    def __init__(self, keys: Sequence[bytes], inputs: Inputs) -> None:
        self._keys = list(keys)
        self._schema = inputs.arrow_schema

    def process(self, path: str) -> Iterator[beam.pvalue.TaggedOutput]:
        pa = require("pyarrow", purpose=_PURPOSE)
        records = read_records(path)
        for key, count in json.loads(next(records))["entries"]:
            tag = _tag(self._keys.index(bytes.fromhex(key)))
            for _ in range(count):
                yield beam.pvalue.TaggedOutput(tag, next(records))
        for record in records:
            yield beam.pvalue.TaggedOutput(_INPUTS, pa.ipc.read_record_batch(record, self._schema))


def read_batches(path: str) -> Iterator[pa.RecordBatch]:
    """The record batches of an Arrow stream."""
    pa = require("pyarrow", purpose=_PURPOSE)
    with pa.OSFile(path) as file, pa.ipc.open_stream(file) as stream:
        yield from stream


def _pipeline() -> beam.Pipeline:
    return beam.Pipeline(runner=_RUNNER, options=PipelineOptions([]))


def _tag(number: int) -> str:
    return f"entry{number}"


def _entry_path(scratch: str, number: int) -> str:
    return os.path.join(scratch, f"entry-{number:05d}")


def _write_values(values: list[bytes], path: str) -> None:
    # Sorted: Beam does not guarantee the order of grouped values.
    with RecordWriter(path) as writer:
        for value in sorted(values):
            writer.write(value)
