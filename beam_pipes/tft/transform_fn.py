"""`TransformFn`: tensorflow-transform's analyzers as an analysis pass of a build.

`ApplyTransformFn`: a stage that writes transformed examples into the cache.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import importlib
import importlib.metadata
import json
import os
import re
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import ModuleType
from typing import TYPE_CHECKING

from beam_pipes.analysis import Accumulator, AnalysisError, Analyzer, Result
from beam_pipes.errors import BeamPipesError, DeclarationError, SpecError
from beam_pipes.extras import TfTensor, require
from beam_pipes.format.spec import ExampleSpec, FeatureSpec, Record
from beam_pipes.tft.canonical_saved_model import make_canonical
from beam_pipes.tft.raw_features import RawFeatures, Varying
from beam_pipes.tft.transform_function import FEATURES_NAME, TransformFunction
from beam_pipes.typed import Pipeline

if TYPE_CHECKING:
    from beam_pipes.tft.beam_passes import Inputs

PreprocessingFn = Callable[[dict[str, TfTensor]], Mapping[str, object]]

# Examples in a batch of tensors. Batches are re-cut, so that results do not depend on how a source cuts them.
BATCH_EXAMPLES = 1024

# Besides the function, these determine the analyzers' results and the SavedModel.
_LIBRARIES = ("tensorflow", "tensorflow-transform")
_PURPOSE = "a TransformFn"

# Text that Beam and TensorFlow add around an error message.
_RUNNING = re.compile(r" \[while running '.*'\]")
_NOISE = ("Graph execution error", "Detected at node", "<stack traces")


@dataclasses.dataclass(frozen=True, eq=False)
class TransformFn(Analyzer):
    """Learns the transform function of a preprocessing_fn, tensorflow-transform's own signature:

        def preprocess(inputs):
            return {
                "stars_z": tft.scale_to_z_score(inputs["stars"]),
                "word_ids": tft.compute_and_apply_vocabulary(inputs["words"], top_k=30_000),
            }

        learned = TransformFn(
            "tft",
            of=ParseReview(),
            preprocessing_fn=preprocess,
            features={"stars": FeatureSpec("float32"), "words": FeatureSpec("str", shape=(None,))},
        )
        Declaration(..., analyzers=(learned,))

    The result is the directory that `tft.TFTransformOutput` reads, an asset of the cache. Apply it after a loader or
    at serving (`TransformFunction`), or in the build itself (`ApplyTransformFn`).

    Analyzers run on Beam, source shard by source shard. Their results are kept for each, so that a later build analyses
    only new source shards. Analyzers that depend on others' results (a mean of something scaled) need the inputs again
    at the merge: their batches are kept too, and take as much space as the inputs.

    Args:
        name, of: see `Analyzer`; `of` ends in examples (`dict`).
        preprocessing_fn: a function from inputs to outputs, name → tensors, or its reference `package.module:name`,
            which is imported only on use, so that its module may import TensorFlow at the top.
        features: the features of the examples that the function takes; others are left out.
        varying: how features of shape `(None,)` are passed to the function: "sparse" as SparseTensors, which
            `tf.io.VarLenFeature` gives and most functions expect, or "ragged" as RaggedTensors.

    A fingerprint covers the code of the function and all the code it refers to, the features, and the versions of
    TensorFlow and tensorflow-transform.

    Raises `DeclarationError` if it is not a function, `SpecError` for features that tensorflow-transform cannot
    take. Failures during the analysis raise `AnalysisError`; a missing library raises `MissingExtraError`.
    """

    input_type = dict

    _: dataclasses.KW_ONLY
    preprocessing_fn: PreprocessingFn | str
    features: Mapping[str, FeatureSpec]
    varying: Varying = "sparse"

    def __post_init__(self) -> None:
        super().__post_init__()
        function = self.preprocessing_fn
        if not callable(function) and not (isinstance(function, str) and ":" in function):
            raise DeclarationError(
                "preprocessing_fn should be a function of a dict of tensors, or its reference 'package.module:name', "
                f"got {function!r}."
            ).about("analyzer", self.name)
        try:
            spec = self.features if isinstance(self.features, ExampleSpec) else ExampleSpec(self.features)
            RawFeatures.of(spec, varying=self.varying)
        except SpecError as error:
            raise SpecError(f"analyzer {self.name!r}: {error}", **error.attributes) from error
        object.__setattr__(self, "features", spec)

    @property
    def raw_features(self) -> RawFeatures:
        """The features as tensorflow-transform knows them."""
        return RawFeatures.of(self.features, varying=self.varying)

    @functools.cached_property
    def function(self) -> PreprocessingFn:
        """The preprocessing_fn itself, imported if given by reference."""
        if not isinstance(self.preprocessing_fn, str):
            return self.preprocessing_fn
        module, _, name = self.preprocessing_fn.partition(":")
        try:
            found = getattr(importlib.import_module(module), name)
        except (ImportError, AttributeError) as error:
            raise DeclarationError(
                f"the preprocessing_fn {self.preprocessing_fn!r} cannot be imported: {error}. Name a function at the "
                "top of a module that workers can import."
            ).about("analyzer", self.name) from error
        function: PreprocessingFn = found
        return function

    def fingerprint_config(self) -> Mapping[str, object]:
        return {
            "preprocessing_fn": self.function,
            "features": self.raw_features.to_json(),
            "libraries": {library: _version_of(library) for library in _LIBRARIES},
        }

    def accumulator(self) -> Accumulator:
        return _ShardInputs(self)

    def merge(self, accumulators: Sequence[str], target: str) -> None:
        beam_passes = _beam_passes()
        os.makedirs(target)
        with tempfile.TemporaryDirectory(prefix="beam-pipes-tft-") as scratch, self.blaming("merging source shards"):
            beam_passes.merge(self.function, self._inputs(), accumulators, target, scratch=scratch)
            make_canonical(os.path.join(target, "transform_fn"), scratch=scratch)
        self._write_raw_metadata(os.path.join(target, "metadata"))
        with open(os.path.join(target, FEATURES_NAME), "w", encoding="utf-8") as file:
            file.write(json.dumps(self.raw_features.to_json(), indent=1, sort_keys=True) + "\n")

    def read(self, path: str) -> TransformFunction:
        return TransformFunction(path)

    def analyze(self, batches: str, target: str) -> None:
        """Writes what the analyzers find in the Arrow stream at the path `batches`."""
        beam_passes = _beam_passes()
        with self.blaming("analysing a source shard"):
            beam_passes.analyze(self.function, self._inputs(), batches, target)

    @contextlib.contextmanager
    def blaming(self, what: str) -> Iterator[None]:
        """Raises errors of the preprocessing_fn, in tracing or on data, as an `AnalysisError`."""
        try:
            yield
        except BeamPipesError:
            raise
        except Exception as error:
            function = self.preprocessing_fn if isinstance(self.preprocessing_fn, str) else _name_of(self.function)
            raise AnalysisError(
                f"the preprocessing_fn {function} failed while {what}: {_words_of(error)} It was given "
                f"{self._described()}. Repair the function, or the features of the TransformFn."
            ).about("analyzer", self.name) from error

    def _described(self) -> str:
        forms = {
            raw.name: f"{raw.dtype} of shape {(None, *raw.shape)}"
            if raw.shape is not None
            else f"{self.varying} {raw.dtype}"
            for raw in self.raw_features
        }
        return ", ".join(f"{name} ({form})" for name, form in forms.items())

    def _inputs(self) -> Inputs:
        raw = self.raw_features
        inputs: Inputs = _beam_passes().Inputs(raw.feature_spec(), raw.arrow_schema)
        return inputs

    def _write_raw_metadata(self, directory: str) -> None:
        """The schema of the function's inputs: `tft.TFTransformOutput.raw_feature_spec()`."""
        metadata = require("tensorflow_transform.tf_metadata.dataset_metadata", purpose=_PURPOSE)
        metadata_io = require("tensorflow_transform.tf_metadata.metadata_io", purpose=_PURPOSE)
        made = metadata.DatasetMetadata.from_feature_spec(self.raw_features.feature_spec())
        metadata_io.write_metadata(made, directory)


class _ShardInputs(Accumulator):
    """The examples of one source shard as an Arrow stream on disk, in batches of `BATCH_EXAMPLES`."""

    def __init__(self, learned: TransformFn) -> None:
        self._learned = learned
        self._raw = learned.raw_features
        self._examples: list[Mapping[str, object]] = []
        self._places: list[tuple[Sequence[str], int]] = []
        self._directory = tempfile.TemporaryDirectory(prefix="beam-pipes-tft-")
        self._path = os.path.join(self._directory.name, "examples.arrow")
        ipc = require("pyarrow.ipc", purpose=_PURPOSE)
        self._stream = ipc.new_stream(self._path, self._raw.arrow_schema)

    def add(self, values: Sequence[Record], record_ids: Sequence[str]) -> None:
        for at, example in enumerate(values):
            self._examples.append(example)
            self._places.append((record_ids, at))
            if len(self._examples) == BATCH_EXAMPLES:
                self._flush()

    def save(self, path: str) -> None:
        if self._examples:
            self._flush()
        self._stream.close()
        self._learned.analyze(self._path, path)
        self._directory.cleanup()

    def _flush(self) -> None:
        try:
            batch = self._raw.record_batch(self._examples)
        except SpecError:
            self._blame_record()
            raise
        self._stream.write_batch(batch)
        self._examples, self._places = [], []

    def _blame_record(self) -> None:
        """Raises the error for the first example that does not fit, naming its record."""
        for example, (record_ids, at) in zip(self._examples, self._places, strict=True):
            try:
                self._raw.columns([example])
            except SpecError as error:
                raise AnalysisError(
                    f"record {record_ids[at]!r} does not fit the features of the TransformFn: {error}"
                ).about("analyzer", self._learned.name, record=record_ids[at]) from error


def _beam_passes() -> ModuleType:
    """The module of that name; raises `MissingExtraError` if a library of it is not installed."""
    for module in ("apache_beam", "tensorflow", "tensorflow_transform"):
        require(module, purpose=_PURPOSE)
    return importlib.import_module("beam_pipes.tft.beam_passes")


def _version_of(library: str) -> str:
    try:
        return importlib.metadata.version(library)
    except importlib.metadata.PackageNotFoundError:
        require(library.replace("-", "_"), purpose=_PURPOSE)
        raise


def _name_of(function: object) -> str:
    return f"{getattr(function, '__module__', '?')}:{getattr(function, '__qualname__', function)}"


def _words_of(error: BaseException) -> str:
    """The innermost cause in one line: Beam and TensorFlow wrap errors of user functions and quote their traces."""
    while error.__cause__ is not None:
        error = error.__cause__
    lines = [line.strip() for line in _RUNNING.sub("", str(error)).splitlines()]
    useful = [line for line in lines if line and not any(noise in line for noise in _NOISE)]
    return f"{type(error).__name__}: {useful[0].rstrip('.') if useful else 'no message'}."


@dataclasses.dataclass(frozen=True, kw_only=True)
class ApplyTransformFn(Pipeline):
    """Raw examples → transformed examples, plus the raw features in `keep`.

        tft = TransformFn("tft", of=ParseReview(), preprocessing_fn=preprocess, features=RAW)
        pipeline = DAGPipeline({parse: Input(str), (apply := ApplyTransformFn(result=tft.result)): parse,
                                Output("train"): apply})

        {"stars": 5.0, "id": 17}  →  {"stars_z": array(1.2, dtype=float32), "id": 17}      with keep=("id",)

    Worth its space if the transformation costs more than reading its output; while the function still changes, cache
    raw examples and apply it in the loader (`TransformFunction`): the values are the same.
    """

    input_type = dict
    output_type = dict

    result: Result
    keep: tuple[str, ...] = ()

    def transform(self, example: Mapping[str, object]) -> list[dict[str, object]]:
        return self.transform_batch([example])[0]

    def transform_batch(self, examples: Sequence[Mapping[str, object]]) -> list[list[dict[str, object]]]:
        """All examples at once: a call costs a millisecond, each example a few microseconds."""
        function: TransformFunction = self.result.value()
        taken = sorted(set(self.keep) & set(function.outputs))
        if taken:
            raise DeclarationError(
                f"{taken} are transformed features, and to be kept as they were. Leave them out of keep, or rename the "
                "outputs of the preprocessing_fn."
            ).about("stage", self.name)
        made = function.examples(examples)
        for transformed, example in zip(made, examples, strict=True):
            for name in self.keep:
                if name not in example:
                    raise SpecError(
                        f"stage {self.name!r}: expected the feature {name!r}, which is to be kept, got "
                        f"{sorted(example)}. Leave it out of keep, or give every example all of them.",
                        feature=name,
                    )
                transformed[name] = example[name]
        return [[transformed] for transformed in made]
