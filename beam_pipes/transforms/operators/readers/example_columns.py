"""Features of many serialized Examples as columns.

Records of equal length mostly have the same layout: the same bytes at the same places, except for the values. So one of
them is parsed to locate each value, and the others are compared with it at all other places.

Records of different lengths that hold the same features in the same order are walked through together. One record
determines which bytes come in which order: literal ones (tags and names), lengths, and values. Then all records take
each of these steps together, in a few NumPy calls, whatever their lengths. Records of another form are detected and
parsed one by one.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
from google.protobuf.message import DecodeError

from beam_pipes.cache.regions import overlapping_rows, take_runs
from beam_pipes.format import messages
from beam_pipes.format.wire import WireForm, decode_varints, plain_places
from beam_pipes.graph.functions import LISTS, TFRecordFeature, float32, string
from beam_pipes.graph.tensors import Array

Column = Array | list[Array]  # (n, …) if all samples have one shape, else a list of arrays

# Below this many records, parsing them one by one is as fast.
LEAST_RECORDS = 4
_MOST_TEMPLATES = 256


class ExampleColumns:
    """Parses Examples of declared features."""

    def __init__(self, features: Mapping[str, TFRecordFeature]) -> None:
        self.features = dict(features)
        self._names = list(self.features)
        self._templates: dict[tuple[int, frozenset[int]], Template | None] = {}
        self._form: WireForm | None = None

    def parse(self, payload: bytes, outputs: Collection[int]) -> list[Any]:
        """The samples of one record, None for features not requested; raises `ValueError` for invalid records."""
        try:
            found = messages.Example.FromString(payload).features.feature
        except DecodeError as error:
            raise ValueError(f"the record is not a serialized Example ({len(payload)} bytes): {error}") from error
        return [
            _sample(name, feature, found[name] if name in found else None) if index in outputs else None
            for index, (name, feature) in enumerate(self.features.items())
        ]

    def read(self, data: Array, starts: Array, sizes: Array, outputs: Collection[int]) -> list[Column | None]:
        """The features of payloads in `data`, a column for each requested one."""
        wanted = frozenset(outputs)
        if not wanted:
            return [None] * len(self.features)
        if len(starts) >= LEAST_RECORDS:
            if (sizes == sizes[0]).all():
                template = self.template(data, int(starts[0]), int(sizes[0]), wanted)
                columns = None if template is None else self.laid_out(template, data, starts)
                if columns is not None:
                    return columns
            walked = self._walked(data, starts, sizes, wanted)
            if walked is not None:
                return walked
        return self._each(data, starts, sizes, wanted)

    def _each(self, data: Array, starts: Array, sizes: Array, wanted: frozenset[int]) -> list[Column | None]:
        """One by one."""
        places = zip(starts.tolist(), (starts + sizes).tolist(), strict=True)
        parsed = [self.parse(data[start:end].tobytes(), wanted) for start, end in places]
        return [[one[index] for one in parsed] if index in wanted else None for index in range(len(self.features))]

    # Records of one length

    def template(self, data: Array, start: int, size: int, wanted: frozenset[int]) -> Template | None:
        """The layout of records of this length: that of the first one, which may be the payload at `start`."""
        key = (size, wanted)
        if size and key not in self._templates:
            if len(self._templates) >= _MOST_TEMPLATES:
                self._templates.clear()
            self._templates[key] = self._template(data[start : start + size].tobytes(), wanted)
        return self._templates.get(key)

    def laid_out(
        self, template: Template, data: Array, starts: Array, *, is_known: bool = False
    ) -> list[Column | None] | None:
        """The columns of payloads with the layout `template`; None if one of them differs.

        With `is_known`, all of them were compared before, and are not compared again.
        """
        if not is_known and not (data[starts[:, None] + template.positions] == template.expected).all():
            return None
        made: list[Column | None] = [None] * len(self.features)
        for index, (kind, start, end) in template.places.items():
            feature = self.features[self._names[index]]
            if kind is None:
                made[index] = _defaults(feature, len(starts))
                continue
            column = _column(feature, data, starts + start, end - start)
            if column is None:
                return None
            made[index] = column
        return made

    def _template(self, payload: bytes, wanted: frozenset[int]) -> Template | None:
        found = plain_places(payload)
        if found is None:
            return None
        places: dict[int, tuple[str | None, int, int]] = {}
        for index in wanted:
            name = self._names[index]
            places[index] = found.get(name, (None, 0, 0))
            if name in found and found[name][0] != LISTS[self.features[name].dtype]:
                return None
        # Positions and lengths of values are the same in all records; only the values may differ.
        fixed = np.ones(len(payload), np.bool_)
        for _, start, end in found.values():
            fixed[start:end] = False
        positions = np.flatnonzero(fixed)
        return Template(positions, np.frombuffer(payload, np.uint8)[positions], places)

    # Records of several lengths

    def _walked(self, data: Array, starts: Array, sizes: Array, wanted: frozenset[int]) -> list[Column | None] | None:
        """Payloads with the same features in the same order; None if few have them."""
        if self._form is None:
            start = int(starts[0])
            places = plain_places(data[start : start + int(sizes[0])].tobytes())
            if places is None:
                return None
            self._form = WireForm(places)
        found, fits = self._form.walk(data, starts, sizes)
        for index in wanted:
            name = self._names[index]
            if name in found and found[name].kind != LISTS[self.features[name].dtype]:
                self._form = None
                return None
        if 2 * fits.sum() < len(fits):
            self._form = None  # it was an unusual record
            return None
        made: list[Column | None] = [None] * len(self.features)
        for index in wanted:
            feature = self.features[self._names[index]]
            values = found.get(self._names[index])
            if values is None:
                column: Column | None = _defaults(feature, int(fits.sum()))
            else:
                column = _column(feature, data, values.starts[fits], values.sizes[fits])
            if column is None:
                return None
            made[index] = column
        if fits.all():
            return made
        others = self._each(data, starts[~fits], sizes[~fits], wanted)
        order = np.argsort(np.concatenate([np.flatnonzero(fits), np.flatnonzero(~fits)])).tolist()
        for index in wanted:
            together = [*(made[index] or ()), *(others[index] or ())] if isinstance(made[index], list) else None
            together = [*made[index], *others[index]] if together is None else together  # type: ignore[misc]
            made[index] = [together[at] for at in order]
        return made


@dataclasses.dataclass(frozen=True)
class Template:
    """A record with gaps for the values: the other bytes, and list and place of the values of each output."""

    positions: Array
    expected: Array
    places: dict[int, tuple[str | None, int, int]]


def _defaults(feature: TFRecordFeature, count: int) -> Array:
    default = feature.default()
    return np.broadcast_to(default, (count, *default.shape))


def _column(feature: TFRecordFeature, data: Array, starts: Array, sizes: Array | int) -> Column | None:
    """The values of a feature, from where they start in `data`, and their bytes; None if a record needs the parser."""
    if not isinstance(sizes, int) and (sizes == sizes[0]).all():
        sizes = int(sizes[0])
    flat: Array
    if isinstance(sizes, int):
        flat = overlapping_rows(data, sizes)[starts].view(np.uint8) if sizes else np.zeros(0, np.uint8)
        if feature.dtype == string:
            return flat.reshape(len(starts), sizes)
    elif feature.dtype == string:
        ends = (starts + sizes).tolist()
        return [np.array(data[start:end]) for start, end in zip(starts.tolist(), ends, strict=True)]
    else:
        flat = take_runs(data, starts, sizes, np.dtype(np.uint8))
    if feature.dtype == float32:
        counts, rests = np.divmod(np.atleast_1d(sizes), 4)
        if rests.any():
            return None
        numbers = flat.view("<f4")
    else:
        run_ends = np.cumsum(np.broadcast_to(sizes, len(starts)))
        if len(flat) and (flat[run_ends[run_ends > 0] - 1] >= 0x80).any():
            return None
        numbers, before = decode_varints(flat, run_ends)
        counts = np.diff(before, prepend=0)
    shapes = {count: _value_shape(feature, count) for count in set(counts.tolist())}
    if None in shapes.values():
        return None
    if len(shapes) == 1:
        return numbers.reshape(len(starts), *next(iter(shapes.values())))  # type: ignore[misc]
    bounds = np.cumsum(counts).tolist()
    return [
        numbers[end - count : end].reshape(shapes[count]) for end, count in zip(bounds, counts.tolist(), strict=True)
    ]


def _value_shape(feature: TFRecordFeature, count: int) -> tuple[int, ...] | None:
    """The shape of a sample of `count` values; None if they do not fit the declaration."""
    if feature.shape is not None:
        return feature.shape if math.prod(feature.shape) == count else None
    row = math.prod(feature.partial_shape)
    if row == 0 or count % row:
        return None
    return (count // row, *feature.partial_shape)


def _sample(name: str, feature: TFRecordFeature, found: messages.Feature | None) -> Array:
    """The sample of one feature of a parsed record; the default if the record has none."""
    kind = None if found is None else found.WhichOneof("kind")
    if kind is None:
        return feature.default()
    if kind != LISTS[feature.dtype]:
        raise ValueError(f"feature {name!r}: expected {feature.dtype} ({LISTS[feature.dtype]}), found a {kind}")
    values = getattr(found, kind).value
    if feature.dtype == string:
        if len(values) != 1:
            raise ValueError(f"feature {name!r}: expected one string, found {len(values)}")
        return np.frombuffer(values[0], np.uint8)
    made = np.array(values, feature.numpy_dtype)
    shape = _value_shape(feature, made.size)
    if shape is None:
        wanted = f"shape {list(feature.shape)}" if feature.shape is not None else f"rows of {feature.partial_shape}"
        raise ValueError(f"feature {name!r}: expected {wanted}, found {made.size} values")
    return made.reshape(shape)
