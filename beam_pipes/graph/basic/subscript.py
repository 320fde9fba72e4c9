"""`node[...]`: indexing every sample."""

from __future__ import annotations

from typing import Any

import numpy as np

from beam_pipes.errors import InferenceError
from beam_pipes.graph.argument import Constant
from beam_pipes.graph.data_node import DataNode
from beam_pipes.graph.operator import Operator
from beam_pipes.graph.samples import Sample
from beam_pipes.graph.tensor_spec import TensorSpec
from beam_pipes.graph.user_frame import user_frame

# An item of a key: ("int", 3), ("slice", start, stop, step), ("newaxis",), ("ellipsis",). A number that is a data node
# is written ("node", k): the k-th of the operator's inputs behind the data.
Item = tuple[Any, ...]


class Subscript(Operator):
    """NumPy's basic indexing, sample by sample; bounds may be data nodes."""

    op_name = "subscript"
    inputs = ("data", "bounds")
    optional_inputs = 1
    variadic = True
    devices = ("cpu", "gpu")

    items = Constant("any", doc="the key")

    def infer(self, *inputs: TensorSpec) -> TensorSpec:
        data, bounds = inputs[0], inputs[1:]
        for spec in bounds:
            if spec.ndim not in (None, 0) or (spec.dtype is not None and spec.dtype.kind not in "iu"):
                raise self.refuse(f"an index should be an integer scalar for each sample, got {spec}")
        if data.shape is None:
            return TensorSpec(data.dtype)
        shape: list[int | None] = []
        layout: list[str] = []
        named = len(data.layout) == len(data.shape)
        used = sum(item[0] not in ("newaxis", "ellipsis") for item in self.items)
        if used > len(data.shape):
            raise self.refuse(f"{used} indices are too many for samples of rank {len(data.shape)}, {data}")
        items = self.items if any(item[0] == "ellipsis" for item in self.items) else [*self.items, ("ellipsis",)]
        axis = 0
        for item in items:
            if item[0] == "newaxis":
                shape.append(1)
                named = False
            elif item[0] == "ellipsis":
                for _ in range(len(data.shape) - used):
                    shape.append(data.shape[axis])
                    layout += data.layout[axis : axis + 1]
                    axis += 1
            else:
                size = data.shape[axis]
                if item[0] == "slice":
                    known = size is not None and not any(isinstance(bound, tuple) for bound in item[1:])
                    shape.append(len(range(size)[slice(*item[1:])]) if known and size is not None else None)
                    layout += data.layout[axis : axis + 1]
                elif item[0] == "int" and size is not None and not -size <= item[1] < size:
                    raise self.refuse(f"the index {item[1]} lies outside axis {axis} of {data}")
                axis += 1
        return TensorSpec(data.dtype, tuple(shape), "".join(layout) if named else "")

    def run(self, sample: Sample, data: Any, *bounds: Any) -> Any:
        return np.asarray(data[self._key([int(bound) for bound in bounds])])

    def run_arrays(self, xp: Any, data: Any, *bounds: Any) -> Any:
        if not bounds:
            if xp is np:
                return data[(slice(None),) + self._key([])]
            data, items = self._forwards(xp, data)
            return data[(slice(None),) + self._key_of(items, [])]
        picks = [item for item in self.items if item[0] == "node"]
        if len(picks) != len(bounds) or len(bounds) > 1 or xp is np:
            if xp is np:
                keys = zip(*(bound.tolist() for bound in bounds), strict=True)
                return [one[self._key(list(key))] for one, key in zip(data, keys, strict=True)]
            raise ValueError(
                "slices whose bounds are data nodes differ in size, which no device array does. Index before .gpu()."
            )
        # One index a sample: the axis is moved to the front, and each sample takes its own.
        at = self.items.index(picks[0])
        before = [item for item in self.items[:at] if item[0] != "newaxis"]
        if any(item[0] != "slice" or item[1:] != (None, None, None) for item in before):
            raise ValueError(
                "on a device, an index that is a data node stands first or behind `:`. Index before .gpu()."
            )
        rest = self._key_of([("slice", None, None, None) for _ in before] + list(self.items[at + 1 :]), [])
        axis = 1 + len(before)
        index = bounds[0] + xp.where(bounds[0] < 0, data.shape[axis], 0)
        shape = (-1,) + (1,) * (data.ndim - 1)
        taken = xp.take_along_axis(data, xp.reshape(index, shape), axis=axis)
        return xp.squeeze(taken, axis=axis)[(slice(None),) + rest]

    def _forwards(self, xp: Any, data: Any) -> tuple[Any, list[Item]]:
        """Slices that go backwards are taken by index: torch has none. Returns the data and the rest of the key."""
        items: list[Item] = []
        used = sum(item[0] not in ("newaxis", "ellipsis") for item in self.items)
        axis = 1
        for item in self.items:
            if item[0] == "slice" and (item[3] or 1) < 0:
                order = np.array(range(data.shape[axis])[slice(*item[1:])], np.int32)
                data = xp.take(data, xp.asarray(order), axis=axis)
                item = ("slice", None, None, None)
            axis += data.ndim - 1 - used if item[0] == "ellipsis" else item[0] != "newaxis"
            items.append(item)
        return data, items

    def _key(self, bounds: list[int]) -> tuple[Any, ...]:
        return self._key_of(self.items, bounds)

    def _key_of(self, items: Any, bounds: list[int]) -> tuple[Any, ...]:
        def number(value: Any) -> Any:
            return bounds[value[1]] if isinstance(value, tuple) else value

        key: list[Any] = []
        for item in items:
            if item[0] == "int":
                key.append(item[1])
            elif item[0] == "node":
                key.append(bounds[item[1]])
            elif item[0] == "slice":
                key.append(slice(*map(number, item[1:])))
            else:
                key.append(None if item[0] == "newaxis" else Ellipsis)
        return tuple(key)


def subscript(node: DataNode, key: Any) -> DataNode:
    """The data node of `node[key]`."""
    from beam_pipes.graph.trace import call, located

    bounds: list[DataNode] = []

    def number(value: Any) -> Any:
        if isinstance(value, DataNode):
            bounds.append(value)
            return ("node", len(bounds) - 1)
        if value is None or (isinstance(value, (int, np.integer)) and not isinstance(value, (bool, np.bool_))):
            return None if value is None else int(value)
        raise located(
            InferenceError(
                "a data node is indexed by integers, slices, `...`, None and data nodes of integers, got "
                f"{value!r:.60}."
            ),
            user_frame(),
        )

    items: list[Item] = []
    for one in key if isinstance(key, tuple) else (key,):
        if one is None:
            items.append(("newaxis",))
        elif one is Ellipsis:
            items.append(("ellipsis",))
        elif isinstance(one, slice):
            items.append(("slice", number(one.start), number(one.stop), number(one.step)))
        else:
            found = number(one)
            items.append(found if isinstance(found, tuple) else ("int", found))
    if sum(item[0] == "ellipsis" for item in items) > 1:
        raise located(InferenceError("an index holds `...` once at most."), user_frame())
    made: DataNode = call(Subscript, (node, *bounds), {"items": items})
    return made
