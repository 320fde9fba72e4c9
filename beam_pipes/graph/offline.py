"""The part before the cut: declared, written to a cache, and read back from it.

`NumberedSource` gives the records of one reader with their numbers, for jobs that read other data sets alongside.
`make_declaration` makes a `Declaration` with one unit for each operator, run by any runner, written to a cache.
`CachedStore` reads that cache in the order of its reader.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from beam_pipes.building.declaration import Declaration
from beam_pipes.building.declaration_fingerprint import explain_change, fingerprint_declaration, read_fingerprint
from beam_pipes.cache.reader import Cache
from beam_pipes.engine.graph import Graph, Ref, Unit
from beam_pipes.engine.records import current_context
from beam_pipes.errors import GraphError, StaleCacheError
from beam_pipes.format.spec import FeatureSpec
from beam_pipes.graph.apply import apply
from beam_pipes.graph.basic import Merge, Partial
from beam_pipes.graph.cut import OfflinePart
from beam_pipes.graph.data_node import DataNode, OperatorNode
from beam_pipes.graph.host_run import NO_VALUE
from beam_pipes.graph.operator import Operator
from beam_pipes.graph.reader import Indices, NumberedRecords, Reader, RecordStore
from beam_pipes.graph.samples import Records, Samples
from beam_pipes.graph.tensors import Array, TensorList
from beam_pipes.publication.terms import FIELDS, Terms
from beam_pipes.sources.record_batch import RecordBatch
from beam_pipes.sources.source import Source, SourcePlan, SourceShard
from beam_pipes.typed.pipeline import Pipeline

if TYPE_CHECKING:
    from beam_pipes.sources.digests import DigestCache

# Separates the digest of a slice from that of the data read beside it.
_BESIDE = "&"


@dataclasses.dataclass(frozen=True, slots=True)
class NumberedValue:
    """A value of a reader's source, and the number of its record, from 0."""

    value: object
    number: int


@dataclasses.dataclass(frozen=True, eq=False)
class NumberedSource(Source):
    """The source of `reader`; record i is paired with record i of the readers in `beside`, which stages read by number.

    Data read beside it count in the digests of all slices: if any of it changes, a build redoes all shards.
    """

    reader: Reader
    beside: tuple[Reader, ...]

    @functools.cached_property
    def _source(self) -> Source:
        return self.reader.declared_source()

    @functools.cached_property
    def _numbers(self) -> Mapping[str, int]:
        store = self.reader.shared_store
        return {name: number for number, name in enumerate(store.record_ids(np.arange(len(store))))}

    def __getstate__(self) -> dict[str, object]:
        return {"reader": self.reader, "beside": self.beside}

    @property
    def output_type(self) -> type:
        return NumberedValue

    def plan(self, *, target_shard_bytes: int, digests: DigestCache | None = None) -> SourcePlan:
        """The plan of the reader's source. Raises `GraphError` if the data sets differ in length."""
        for other in self.beside:
            store = other.open()
            size = len(store)
            store.close()
            if size != len(self._numbers):
                raise GraphError(
                    f"{self.reader.name} has {len(self._numbers)} records and {other.name} {size}: before the cut "
                    "record i of one is read with record i of the other. Give them equally many, or put the cut on one "
                    "side."
                )
        plan = self._source.plan(target_shard_bytes=target_shard_bytes, digests=digests)
        whole = hashlib.sha256()
        for other in self.beside:
            for shard in other.source().plan(target_shard_bytes=target_shard_bytes, digests=digests).shards:
                whole.update(f"{other.name}\0{shard.fingerprint()}\n".encode())
        mark = _BESIDE + whole.hexdigest()
        shards = tuple(_with_digests(shard, lambda digest: digest + mark) for shard in plan.shards)
        return dataclasses.replace(plan, shards=shards)

    def read(
        self, shard: SourceShard, *, batch_records: int = 256, batch_bytes: int = 1 << 20
    ) -> Iterator[RecordBatch]:
        plain = _with_digests(shard, lambda digest: digest.partition(_BESIDE)[0])
        for batch in self._source.read(plain, batch_records=batch_records, batch_bytes=batch_bytes):
            numbers = [self._numbers[name] for name in batch.record_ids()]
            yield batch.replacing(
                values=[NumberedValue(*pair) for pair in zip(batch.values, numbers, strict=True)],
                ordinals=batch.ordinals,
                bad=batch.bad,
                piece_of=lambda piece: piece,
            )

    def parse(self, raw: bytes, *, file: str, position: int) -> NumberedValue:
        value = self._source.parse(raw, file=file, position=position)
        return NumberedValue(value, self._numbers[f"{file}@{position}"])

    def fingerprint_config(self) -> Mapping[str, object]:
        return {**self._source.fingerprint_config(), "beside": [other.name for other in self.beside]}

    def fingerprint_class(self) -> str:
        return self._source.fingerprint_class()

    def splits_of(self, shard: SourceShard) -> Sequence[str] | None:
        return self._source.splits_of(shard)

    def terms_of(self, file: str) -> Terms:
        return self._source.terms_of(file)

    def all_terms(self) -> Sequence[Terms]:
        return self._source.all_terms()


def _with_digests(shard: SourceShard, change: Callable[[str], str]) -> SourceShard:
    slices = tuple(dataclasses.replace(piece, digest=change(piece.digest)) for piece in shard.slices)
    return dataclasses.replace(shard, slices=slices)


#: The feature that holds the name of the record, which is the key of draws after the cut.
RECORD_FEATURE = "record_id"


class _Absent:
    """The value of an operator in a branch that a record does not take."""

    def __repr__(self) -> str:
        return "ABSENT"

    def __reduce__(self) -> str:
        return "ABSENT"


ABSENT = _Absent()


class _Stage:
    """The base of all stages of an offline part: an operator, and a value for each of its outputs."""

    #: Set by the graph that creates it; does not affect results.
    on_error: str | None = None

    def __init__(self, node: OperatorNode) -> None:
        self.name = node.name
        self.operator: Operator = node.operator
        self.output_type: Mapping[str, type] = {str(index): object for index in range(len(node.outputs))}
        self.on_error = node.on_error

    def fingerprint_config(self) -> Mapping[str, object]:
        return {"operator": self.operator}


class ReadStage(_Stage):
    """A value of the source → the reader's outputs for it."""

    def __init__(self, node: OperatorNode, source: Source) -> None:
        super().__init__(node)
        reader = node.operator
        assert isinstance(reader, Reader)
        self.reader = reader
        self.input_type: type = source.output_type
        self.output_type = {**self.output_type, RECORD_FEATURE: object}

    def transform(self, value: object) -> dict[str, list[object]]:
        if isinstance(value, NumberedValue):
            value = value.value
        context = current_context()
        assert context is not None  # the engine sets it
        made: dict[str, list[object]] = {
            str(index): [np.asarray(one)] for index, one in enumerate(self.reader.from_source(value))
        }
        return {**made, RECORD_FEATURE: [context.record_id]}


class ReadBesideStage(_Stage):
    """The number of a record → another reader's outputs for the record of that number."""

    def __init__(self, node: OperatorNode) -> None:
        super().__init__(node)
        reader = node.operator
        assert isinstance(reader, Reader)
        self.reader = reader
        self.input_type: type = NumberedValue
        self._store: RecordStore | None = None

    def transform(self, value: NumberedValue) -> dict[str, list[object]]:
        if self._store is None:
            self._store = self.reader.open()
        columns = self._store.read(np.array([value.number]), range(len(self.output_type)))
        return {str(index): [column[0]] for index, column in enumerate(columns) if column is not None}

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "_store": None}


class OperatorStage(_Stage):
    """An operator's outputs for one record: the same code as in the loader, over a batch of one."""

    def __init__(self, node: OperatorNode, conditions: Sequence[bool]) -> None:
        super().__init__(node)
        self.input_type: Mapping[str, type] = dict.fromkeys(_input_refs(node), object)
        self.conditions = tuple(conditions)
        self.layouts = tuple(output.spec.layout for output in node.outputs)
        self._node = node

    def transform(self, values: Mapping[str, Any]) -> dict[str, list[object]]:
        for position, branch in enumerate(self.conditions):
            value = values[f"if{position}"]
            if value is ABSENT or bool(value) != branch:
                return {key: [ABSENT] for key in self.output_type}
        inputs = [values[f"in{position}"] for position in range(len(self._node.inputs))]
        if isinstance(self.operator, Merge):
            return {"0": [inputs[1] if bool(inputs[0]) else inputs[2]]}
        if isinstance(self.operator, Partial):
            return {"0": [inputs[1] if bool(inputs[0]) == self.operator.branch else ABSENT]}
        if any(value is ABSENT for value in inputs):
            raise GraphError(NO_VALUE)
        context = current_context()
        assert context is not None  # the engine sets it
        record_id = context.record_id
        samples = Samples(Records(size=1, ids=lambda: [record_id]), np.zeros(1, np.intp), "")
        arguments = {name: TensorList([values[f"arg_{name}"]]) for name in self._node.argument_inputs}
        outcome = apply(self._node, samples, [TensorList([value]) for value in inputs], arguments)
        return {str(index): [column[0]] for index, column in enumerate(outcome.columns)}

    def fingerprint_config(self) -> Mapping[str, object]:
        return {"operator": self.operator, "conditions": self.conditions, "inputs": tuple(self.input_type)}

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "_node": _portable(self._node)}


class ExampleStage:
    """The stored values of a record as an example."""

    name = "Cached example"
    output_type = dict

    def __init__(self, features: Mapping[str, str]) -> None:
        #: The unit's input → the name of the feature.
        self.features = dict(features)
        self.input_type: Mapping[str, type] = dict.fromkeys(self.features, object)

    def transform(self, values: Mapping[str, object]) -> list[dict[str, object]]:
        return [{feature: values[key] for key, feature in self.features.items()}]


def _portable(node: OperatorNode) -> OperatorNode:
    """A node without its graph: what a worker needs."""
    lonely = dataclasses.replace(node, inputs=(), argument_inputs={}, scope=None, pipeline=None, outputs=())
    lonely.inputs = tuple(DataNode(lonely, 0, "cpu", feed.spec) for feed in node.inputs)
    lonely.argument_inputs = {
        name: DataNode(lonely, 0, "cpu", feed.spec) for name, feed in node.argument_inputs.items()
    }
    lonely.outputs = tuple(DataNode(lonely, output.index, "cpu", output.spec) for output in node.outputs)
    return lonely


def _ref(node: DataNode) -> Ref:
    return Ref(node.source.name, str(node.index))


def _input_refs(node: OperatorNode) -> dict[str, Ref]:
    refs = {f"in{position}": _ref(feed) for position, feed in enumerate(node.inputs)}
    refs |= {f"arg_{name}": _ref(feed) for name, feed in node.argument_inputs.items()}
    if node.scope is not None:
        refs |= {f"if{position}": _ref(scope.predicate) for position, scope in enumerate(node.scope.chain())}
    return refs


def feature_spec(node: DataNode) -> FeatureSpec | None:
    """How a data node is stored, under its name; None if its dtype or rank is unknown before it is computed."""
    dtype, shape = node.spec.dtype, node.spec.shape
    return None if dtype is None or shape is None else FeatureSpec(dtype.name, shape=shape)


def make_declaration(part: OfflinePart, *, name: str, **options: Any) -> Declaration:
    """The offline part of a graph as a declaration: `source` from its reader, a unit for each operator."""
    reader_node = part.reader
    reader = reader_node.operator
    assert isinstance(reader, Reader)
    source = reader.declared_source()
    if len(part.readers) > 1:
        _check_terms(part.readers)
        source = NumberedSource(reader, tuple(node.operator for node in part.readers[1:]))  # type: ignore[misc]
    record = {"record": Ref(reader_node.name, RECORD_FEATURE)}
    units = []
    for node in part.nodes:
        if node in part.readers:
            reading = ReadStage(node, source) if node is reader_node else ReadBesideStage(node)
            units.append(Unit(name=node.name, stage=reading, inputs=Ref("", None)))
            continue
        refs = _input_refs(node) or record  # a constant: one for each record
        stage = OperatorStage(node, [scope.branch for scope in node.branches])
        stage.input_type = dict.fromkeys(refs, object)
        units.append(Unit(name=node.name, stage=stage, inputs=refs))
    stored = {f"f{position}": node for position, node in enumerate(part.stored)}
    example = ExampleStage({key: node.name for key, node in stored.items()} | {"record": RECORD_FEATURE})
    refs = {key: _ref(node) for key, node in stored.items()} | record
    units.append(Unit(name=example.name, stage=example, inputs=refs))
    graph = Graph(
        name=name,
        input_type=source.output_type,
        units=tuple(units),
        outputs={"train": Ref(example.name, None)},
        output_type={"train": dict},
    )
    specs = {node.name: feature_spec(node) for node in part.stored}
    known = {name: spec for name, spec in specs.items() if spec is not None}
    declared = {**known, RECORD_FEATURE: FeatureSpec("str")} if len(known) == len(specs) else None
    return Declaration(name=name, source=source, pipeline=_GraphStage(graph), features=declared, **options)


def _check_terms(readers: Sequence[OperatorNode]) -> None:
    """Raises `GraphError` if readers whose records are stored together declare different things about them."""
    for field in FIELDS:
        said = [getattr(reader.operator, field) for reader in readers]
        for reader, value in zip(readers, said, strict=True):
            if value != said[0]:
                raise GraphError(
                    f"{readers[0].name} has {field}={said[0]!r} and {reader.name} {field}={value!r}, and before the "
                    "cut record i of one is stored with record i of the other. Give both what is true of the two "
                    "together, such as license='CC0-1.0 AND MIT'.",
                    where=reader.where,
                )


class _GraphStage(Pipeline):
    """A graph as the pipeline of a declaration."""

    def __init__(self, graph: Graph) -> None:
        super().__init__(graph.input_type, dict(graph.output_type), graph.name)
        self.graph = graph

    def transform(self, value: object) -> NoReturn:
        raise GraphError(f"{self.name}: an offline part is run unit by unit")


class CachedStore(NumberedRecords):
    """The records of a cache built from the offline part of a graph."""

    def __init__(self, path: str, part: OfflinePart, declaration: Declaration) -> None:
        cache = Cache.open(path)
        self._split = cache["train"]
        self._path = path
        self._stored = part.stored
        self._num_read = int(cache.manifest.accounting.get("read", len(self._split)))
        self._check(cache, declaration)

    def _check(self, cache: Cache, declaration: Declaration) -> None:
        """Raises `StaleCacheError` if the cache was built from another graph."""
        wanted = {node.name for node in self._stored} | {RECORD_FEATURE}
        missing = sorted(wanted - set(self._split.spec))
        if missing:
            raise StaleCacheError(
                f"{self._path}: the graph stores {sorted(wanted)} at its cut, and this cache lacks {missing}. It was "
                "made from another graph: build it again.",
                path=self._path,
            )
        was = read_fingerprint(cache.directory)
        if was is None:
            return
        now = fingerprint_declaration(declaration, {"train": self._split.spec})
        if was.digest != now.digest:
            lines = [
                line if stage == "declaration" else f"{stage}: {line}"
                for stage, some in explain_change(was, now).items()
                for line in some
            ]
            raise StaleCacheError(
                f"{self._path}: this cache was made from another graph: {'; '.join(lines[:5]) or 'see its fingerprint'}"
                f"{'; …' if len(lines) > 5 else ''}. Build it again.",
                path=self._path,
            )

    def check_alone(self, others: Sequence[OperatorNode]) -> None:
        """Raises `GraphError` if the cache lacks records but `others` are read beside it: pairs would be wrong."""
        lacking = self._num_read - len(self._split)
        if lacking and others:
            raise GraphError(
                f"{self._path}: the cache lacks {lacking} of {self._num_read} records, which failed, were dropped or "
                f"taken down, and {others[0]} is read beside it, record i with record i: after the first of them "
                "others would meet. Put both before the cut, so that pairs are stored.",
                where=others[0].where,
            )

    def __len__(self) -> int:
        return len(self._split)

    def record_ids(self, indices: Indices) -> Sequence[str]:
        found = self._split.gather(indices, features=[RECORD_FEATURE])[RECORD_FEATURE]
        return [str(one) for one in found]

    def columns(self, indices: Indices) -> dict[DataNode, TensorList]:
        """The stored values of the records, by data node."""
        found = self._split.gather(indices, features=[node.name for node in self._stored], ragged="values")
        columns = {}
        for node in self._stored:
            samples: Array | list[Array] = found[node.name]
            if self._split.spec[node.name].ragged:
                lengths, shapes = found[f"{node.name}/lengths"], found.get(f"{node.name}/shape")
                samples = _parted(found[node.name], lengths, shapes)
            columns[node] = TensorList(samples, layout=node.layout)
        return columns

    def identity(self) -> Mapping[str, object]:
        return {"cache": self._split.manifest_id[:16]}

    def close(self) -> None:
        self._split.close()


def _parted(values: Array, lengths: Array, shapes: Array | None) -> list[Array]:
    """Concatenated values → an array for each record."""
    sizes = lengths if shapes is None else np.prod(shapes, axis=1, dtype=np.int64)
    ends = np.cumsum(sizes)
    parts = [values[end - size : end] for end, size in zip(ends.tolist(), sizes.tolist(), strict=True)]
    return parts if shapes is None else [one.reshape(shape) for one, shape in zip(parts, shapes.tolist(), strict=True)]
