"""`CachedStore`: the part before the cut, read back from a cache in the order of its reader."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from beam_pipes.building.declaration import Declaration
from beam_pipes.building.declaration_fingerprint import explain_change, fingerprint_declaration, read_fingerprint
from beam_pipes.cache.reader import Cache
from beam_pipes.errors import GraphError, StaleCacheError
from beam_pipes.graph.cut import OfflinePart
from beam_pipes.graph.data_node import DataNode, OperatorNode
from beam_pipes.graph.offline import RECORD_FEATURE, feature_name
from beam_pipes.graph.reader import Indices, NumberedRecords
from beam_pipes.graph.tensors import TensorList


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
        wanted = {feature_name(node) for node in self._stored} | {RECORD_FEATURE}
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
                f"taken down, and {others[0]} is read beside it, record i with record i: behind the first of them "
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
        names = [feature_name(node) for node in self._stored]
        found = self._split.gather(indices, features=names, ragged="values")
        spec = self._split.spec
        columns = {}
        for node, name in zip(self._stored, names, strict=True):
            values = found[name]
            if spec[name].ragged:
                rank = len(spec[name].shape)
                lengths = found[f"{name}/lengths"]
                shapes = found.get(f"{name}/shape")
                columns[node] = TensorList(_parted(values, lengths, shapes, rank), layout=node.layout)
            else:
                columns[node] = TensorList(values, layout=node.layout)
        return columns

    def identity(self) -> Mapping[str, Any]:
        return {"cache": self._split.manifest_id[:16]}

    def close(self) -> None:
        self._split.close()


def _parted(values: Any, lengths: Any, shapes: Any, rank: int) -> list[Any]:
    """Concatenated values → an array for each record."""
    if shapes is not None:
        sizes = np.prod(shapes, axis=1, dtype=np.int64)
        ends = np.cumsum(sizes)
        return [
            values[end - size : end].reshape(shape)
            for end, size, shape in zip(ends, sizes, shapes.tolist(), strict=True)
        ]
    ends = np.cumsum(lengths)
    return [values[end - length : end] for end, length in zip(ends.tolist(), lengths.tolist(), strict=True)]
