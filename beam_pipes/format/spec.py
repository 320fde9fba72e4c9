"""What an example consists of: `FeatureSpec` describes one feature and its storage, `ExampleSpec` lists them all."""

from __future__ import annotations

import collections
import dataclasses
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, Protocol

import numpy as np

from beam_pipes.checks import brief, choice
from beam_pipes.errors import SpecError
from beam_pipes.format.dtypes import (
    BYTES,
    FLOATS,
    INTEGERS,
    STR,
    dtype_name,
    integer_range,
    narrowest_integer,
    numpy_dtype,
)
from beam_pipes.format.exact import NotExactError, natural_array

if TYPE_CHECKING:
    from typing_extensions import TypeIs

Example = Mapping[str, object]  # feature name → NumPy array, scalar, bytes, str, or (nested) list
# A value as it is read back. Its type depends on a spec that is opened at run time, which no type checker sees: users
# index it and compute with it directly.
FeatureValue = Any  # NumPy array or scalar, bytes or str
DecodedExample = dict[str, FeatureValue]
# What sources give, stages take and give, and caches hold; at run time an instance of the declared class.
Record = Any  # an example, a message, bytes, or an object of a class of the user's


class Values(Protocol):
    """The values of several records, such as a NumPy array; or what a library of tables keeps them in."""

    def __getitem__(self, part: slice, /) -> Values: ...

    def __len__(self) -> int: ...

    def tolist(self) -> list[Any]:
        """The values as single records have them."""
        ...


ColumnValues = Values | list[Any]
Encoding = Literal["raw", "list"]
ENCODINGS = ("raw", "list")

# What a caller declares: feature name → its spec, as an `ExampleSpec` is; or split → the features of this split.
Features = Mapping[str, "FeatureSpec"]
FeaturesBySplit = Mapping[str, Features]

SHAPE_SUFFIX = "/shape"

_SCALARS = (np.dtype(code).type for code in "?bBhHiIlLqQefdgFDGSUMm")
#: Classes whose objects nobody can change.
UNCHANGEABLE = frozenset([str, bytes, int, float, bool, complex, type(None), *_SCALARS])
_OTHER_DICTS = (collections.defaultdict, collections.OrderedDict, collections.Counter)


def owned(value: Record) -> Record:
    """The value without anything that others may still write to: dicts, lists, arrays, byte buffers and messages are
    copied, at any depth.

    The producer of a record may fill the same buffer or dict for the next one, and its receiver may change it in place,
    while others still hold it. A list that begins with a number or a text is a list of these; objects of other
    classes are kept as they are.
    """
    kind = type(value)
    if kind in UNCHANGEABLE:
        return value
    if kind is dict:
        return {name: item if type(item) in UNCHANGEABLE else owned(item) for name, item in value.items()}
    if isinstance(value, np.ndarray):
        return value.copy(order="K")
    if kind is list:
        return value[:] if not value or type(value[0]) in UNCHANGEABLE else [owned(item) for item in value]
    if kind is tuple:
        return tuple([owned(item) for item in value])
    if kind in _OTHER_DICTS:
        copy = value.copy()
        copy.update((name, owned(item)) for name, item in value.items() if type(item) not in UNCHANGEABLE)
        return copy
    if kind is bytearray:
        return value[:]
    if hasattr(kind, "DESCRIPTOR") and hasattr(kind, "CopyFrom"):
        message = kind()
        message.CopyFrom(value)
        return message
    return value


class NamesClasses(Protocol):
    """Provides names of classes: the result of an analyzer."""

    def class_names(self) -> tuple[str, ...] | None:
        """The names, in the order of their numbers; None until they are known."""
        ...


@dataclasses.dataclass(frozen=True)
class FeatureSpec:
    """The type, shape and storage of one feature.

        FeatureSpec("int32", shape=(None,))                             tokens, any number of them
        FeatureSpec("int32", shape=(1024,), minimum=0, maximum=50_000)  stored as uint16, read back as int32
        FeatureSpec("str")                                              one text

    Args:
        dtype: what reading returns: a name ("int32", "bfloat16", "bytes", "str"), a NumPy dtype or a type.
        shape: `()` is a scalar; `None` is a dimension that varies by record.
        encoding: "raw" keeps the little-endian bytes of the tensor as one `bytes_list` value (10 x faster to encode,
            read without parsing); "list" keeps an `int64_list` or `float_list`, for consumers that want those. Bytes
            and strings are a `bytes_list` under both.
        minimum, maximum: the range of an integer feature. Every value is checked against it, and the narrowest exact
            dtype is stored. Without them, the dtype itself is stored.
        classes: what the values of an integer feature stand for: `("cat", "dog")` for 0 and 1, or the result of an
            analyzer that finds them. They are kept in the manifest, and a build refuses to renumber them.

    Raises:
        SpecError: an argument is malformed, or the encoding cannot hold the dtype exactly.
    """

    dtype: str
    shape: tuple[int | None, ...] = dataclasses.field(default=(), kw_only=True)
    encoding: Encoding = dataclasses.field(default="raw", kw_only=True)
    minimum: int | None = dataclasses.field(default=None, kw_only=True)
    maximum: int | None = dataclasses.field(default=None, kw_only=True)
    # Not compared: it concerns the meaning of values, and caches of the same layout are read together.
    classes: Sequence[str] | NamesClasses | None = dataclasses.field(default=None, kw_only=True, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "dtype", dtype_name(self.dtype))
        if self.classes is not None and self.dtype not in INTEGERS:
            raise SpecError(f"classes are for integer features, and this one is {self.dtype}")
        if self.classes is not None and not hasattr(self.classes, "class_names"):
            names = self.classes if isinstance(self.classes, (list, tuple)) else ()
            if not all(isinstance(each, str) for each in names) or len({*names}) < max(len(names), 1):
                raise SpecError(f"classes should be a list of different names, got {self.classes!r}")
            object.__setattr__(self, "classes", tuple(names))
        object.__setattr__(self, "shape", _checked_shape(self.shape))
        choice(self.encoding, of=ENCODINGS, what="encoding", error=SpecError)
        self._check_range()
        if self.encoding == "list":
            self._check_list()
        if self.is_text and len(self.shape) > 1:
            raise SpecError(
                f"{self.dtype} features are scalars or one-dimensional, got shape {self.shape}. Flatten them, and "
                "store the shape as a separate feature."
            )

    def _check_range(self) -> None:
        for option in ("minimum", "maximum"):
            value = getattr(self, option)
            if value is None:
                continue
            if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
                raise SpecError(f"{option} should be an int, got {value!r}")
            if self.dtype not in INTEGERS:
                raise SpecError(f"{option} is for integer features, and this one is {self.dtype}")
            low, high = integer_range(self.dtype)
            if not low <= value <= high:
                raise SpecError(f"{option} should be in the range of {self.dtype}, [{low}, {high}], got {value}")
            object.__setattr__(self, option, int(value))
        if self.minimum is not None and self.maximum is not None and self.minimum > self.maximum:
            raise SpecError(f"minimum should not exceed maximum, got minimum={self.minimum}, maximum={self.maximum}")

    def _check_list(self) -> None:
        if self.dtype == "float64":
            raise SpecError(
                'float64 cannot be kept exactly in a float_list, which holds float32: use encoding="raw", or declare '
                "float32"
            )
        if self.dtype == "uint64" and self.value_range[1] >= 1 << 63:
            raise SpecError('uint64 does not fit an int64_list: use encoding="raw", or declare a maximum below 2**63')

    @property
    def class_names(self) -> tuple[str, ...] | None:
        """The names that values stand for; None without any, and until an analyzer has found them."""
        if self.classes is None or isinstance(self.classes, Sequence):
            return self.classes if self.classes is None else tuple(self.classes)
        return self.classes.class_names()

    @property
    def is_text(self) -> bool:
        """Whether values are `bytes` or `str`."""
        return self.dtype in (BYTES, STR)

    @property
    def value_range(self) -> tuple[int, int]:
        """The least and greatest value of an integer feature, declared or by dtype."""
        low, high = integer_range(self.dtype)
        return (low if self.minimum is None else self.minimum, high if self.maximum is None else self.maximum)

    @property
    def storage_dtype(self) -> str:
        """The dtype on disk: the narrowest exact one."""
        if self.is_text:
            return self.dtype
        if self.encoding == "list":
            return "float32" if self.dtype in FLOATS else "int64"
        if self.dtype in INTEGERS:
            return narrowest_integer(*self.value_range, declared=self.dtype)
        return self.dtype

    @property
    def numpy_dtype(self) -> np.dtype:
        """The NumPy dtype of values as they are read; objects for bytes and str."""
        return numpy_dtype(self.dtype)

    @property
    def fixed(self) -> bool:
        """Whether every record holds the same number of elements: no dimension varies, and it is not bytes or str."""
        return None not in self.shape and not self.is_text

    @property
    def ragged(self) -> bool:
        """Whether a dimension varies by record."""
        return None in self.shape

    @property
    def has_shape_feature(self) -> bool:
        """Whether the shape must be stored beside the values, because their number does not determine it."""
        rest = self.shape[1:]
        return self.ragged and (None in rest or math.prod(d for d in rest if d is not None) == 0)

    def to_json(self) -> dict[str, object]:
        """A JSON object; `from_json` is the inverse."""
        made: dict[str, object] = {"dtype": self.dtype, "encoding": self.encoding, "shape": list(self.shape)}
        if self.minimum is not None:
            made["minimum"] = self.minimum
        if self.maximum is not None:
            made["maximum"] = self.maximum
        if (names := self.class_names) is not None:
            made["classes"] = list(names)
        return made

    @classmethod
    def from_json(cls, made: object) -> FeatureSpec:
        """Raises `SpecError` if `made` is not what `to_json` returns."""
        known = {field.name for field in dataclasses.fields(cls)}
        if not isinstance(made, Mapping) or "dtype" not in made or not made.keys() <= known:
            raise SpecError(f"expected a feature spec, an object of {', '.join(sorted(known))}, got {made!r}")
        shape = made.get("shape", [])
        if not isinstance(shape, (list, tuple)):
            raise SpecError(f"shape should be a list of sizes and nulls, got {shape!r}")
        return cls(**{**made, "shape": tuple(shape)})


def _checked_shape(shape: Iterable[object]) -> tuple[int | None, ...]:
    if isinstance(shape, (int, np.integer, str)) or shape is None:
        raise SpecError(f"shape should be a tuple of sizes and None, got {shape!r}: write ({shape!r},)")
    checked: list[int | None] = []
    for size in shape:
        if size is not None and (isinstance(size, bool) or not isinstance(size, (int, np.integer)) or size < 0):
            raise SpecError(f"shape should hold sizes (ints >= 0) and None, got {size!r} in {tuple(shape)!r}")
        checked.append(None if size is None else int(size))
    return tuple(checked)


class ExampleSpec(Mapping[str, FeatureSpec]):
    """The features of an example by name, in canonical order: sorted by the UTF-8 bytes of their names. Immutable.

    ExampleSpec({"tokens": FeatureSpec("int32", shape=(None,)), "label": FeatureSpec("int8")})
    """

    def __init__(self, features: Mapping[str, FeatureSpec]) -> None:
        checked: dict[str, FeatureSpec] = {}
        for name in features:
            if not isinstance(name, str) or not name:
                raise SpecError(f"a feature name should be a non-empty str, got {name!r}", feature=name)
            try:
                name.encode()
            except UnicodeEncodeError as error:
                raise SpecError(f"a feature name should be valid Unicode, got {name!r}", feature=name) from error
        for name in sorted(features, key=str.encode):
            feature = features[name]
            if not isinstance(feature, FeatureSpec):
                raise SpecError(
                    f"expected a FeatureSpec, got {feature!r}. Write FeatureSpec('int32', shape=(None,))."
                ).about("feature", name)
            checked[name] = feature
        for name, feature in checked.items():
            if feature.has_shape_feature and name + SHAPE_SUFFIX in checked:
                raise SpecError(
                    f"the name is taken by the shape of {name!r}, which varies in more than its first dimension "
                    f"({feature.shape}). Rename one of the two."
                ).about("feature", name + SHAPE_SUFFIX)
        self._features = checked

    @property
    def with_class_names(self) -> ExampleSpec:
        """The same features, with the names of classes that an analyzer has found."""
        return ExampleSpec({name: dataclasses.replace(each, classes=each.class_names) for name, each in self.items()})

    def __getitem__(self, name: str) -> FeatureSpec:
        return self._features[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._features)

    def __len__(self) -> int:
        return len(self._features)

    def __hash__(self) -> int:
        return hash(tuple(self._features.items()))

    def __repr__(self) -> str:
        return f"ExampleSpec({self._features!r})"

    @property
    def fixed(self) -> bool:
        """Whether all records have the same layout by declaration: all shapes known, no bytes, no int64 lists."""
        return all(
            feature.fixed and not (feature.encoding == "list" and feature.storage_dtype == "int64")
            for feature in self.values()
        )

    def to_json(self) -> dict[str, object]:
        """Feature name → JSON object; `from_json` is the inverse."""
        return {name: feature.to_json() for name, feature in self.items()}

    @classmethod
    def from_json(cls, made: object) -> ExampleSpec:
        """Raises `SpecError`, naming the feature, where `made` is not what `to_json` returns."""
        if not isinstance(made, Mapping):
            raise SpecError(f"expected an example spec, an object of feature name → spec, got {made!r}")
        features: dict[str, FeatureSpec] = {}
        for name, value in made.items():
            try:
                features[name] = FeatureSpec.from_json(value)
            except (SpecError, TypeError) as error:
                raise SpecError(f"feature {name!r}: {error}", feature=name) from error
        return cls(features)

    @classmethod
    def infer(cls, examples: Iterable[Example]) -> ExampleSpec:
        """The spec of the given examples: their names, dtypes and ranks; every dimension is taken to vary.

            infer([{"tokens": np.array([1, 2], np.int32), "label": 3}])
              → {"label": FeatureSpec("int64"), "tokens": FeatureSpec("int32", shape=(None,))}

        Raises `SpecError` if examples differ in names, dtypes or ranks, or where all values of a feature are empty
        lists.
        """
        features: dict[str, FeatureSpec] = {}
        unknown: set[str] = set()
        names: set[str] | None = None
        for position, example in enumerate(examples):
            if names is None:
                names = set(example)
            if set(example) != names:
                differing = sorted(names ^ set(example))
                raise SpecError(
                    f"example {position}: expected the features {sorted(names)} of the first example; {differing} "
                    "differ. Declare the features, and give every example all of them.",
                    feature=differing[0],
                    example=position,
                )
            for name, value in example.items():
                try:
                    found = _infer_feature(name, value)
                except SpecError as error:
                    error.add(f"It is in example {position}.", example=position)
                    raise
                if found is None:
                    unknown.add(name)
                elif features.setdefault(name, found) != found:
                    raise SpecError(
                        f"expected {_words(features[name])} as in earlier examples, got {_words(found)} in example "
                        f"{position}. Declare the feature."
                    ).about("feature", name, example=position, expected=features[name], found=found)
        if names is None:
            raise SpecError("features cannot be inferred without an example: declare them")
        for name in sorted(unknown - features.keys()):
            raise SpecError(
                "an empty list has no dtype, and no example has more. Declare the feature, or give an empty NumPy "
                "array."
            ).about("feature", name)
        return cls(features)


def _infer_feature(name: str, value: object) -> FeatureSpec | None:
    if isinstance(value, (bytes, bytearray, memoryview)):
        return FeatureSpec(BYTES)
    if isinstance(value, str):
        return FeatureSpec(STR)
    if isinstance(value, (list, tuple)) and not value:
        return None
    if isinstance(value, (list, tuple)) and all(isinstance(item, bytes) for item in value):
        return FeatureSpec(BYTES, shape=(None,))
    if isinstance(value, (list, tuple)) and all(isinstance(item, str) for item in value):
        return FeatureSpec(STR, shape=(None,))
    try:
        array = natural_array(value)
    except NotExactError as error:
        raise SpecError(
            f"expected numbers that one dtype holds exactly, got {error}. Declare the feature, and convert the values "
            "on purpose."
        ).about("feature", name, found=error.found) from None
    except ValueError as error:
        raise SpecError(f"expected an array, a scalar, bytes, str or an even list, got {brief(value)}: {error}").about(
            "feature", name
        ) from error
    if array.dtype == object:
        kinds = {type(item) for item in array.ravel().tolist()}
        if kinds == {bytes} or kinds == {str}:
            return FeatureSpec(kinds.pop().__name__, shape=(None,) * array.ndim)
        if type(None) in kinds:
            raise SpecError(
                f"expected a value, got {brief(value)}, but a cache has no missing values. Store one that stands for "
                "it, such as float('nan') or '', or drop the record: return drop(\"no value\")."
            ).about("feature", name)
        if kinds == {int}:
            raise SpecError(
                f"expected integers within int64 or uint64, got {brief(value)}. Store such numbers as text: str(value)."
            ).about("feature", name)
        raise SpecError(
            "expected an array, a scalar, bytes, str or an even list, got objects of type "
            f"{sorted(kind.__name__ for kind in kinds)}. Convert it in the last stage: a dict, for example, to one "
            "feature for each key, or to text with json.dumps."
        ).about("feature", name)
    try:
        return FeatureSpec(dtype_name(array.dtype), shape=(None,) * array.ndim)
    except SpecError as error:
        raise SpecError(f"feature {name!r}: {error}", feature=name) from error


def _words(feature: FeatureSpec) -> str:
    return f"{feature.dtype} of rank {len(feature.shape)}"


# Undeclared features are inferred from this many examples of each split.
INFER_EXAMPLES = 64


def is_by_split(features: Features | FeaturesBySplit) -> TypeIs[FeaturesBySplit]:
    """Whether features are given as split → mapping, and not as one mapping of name → `FeatureSpec` for all splits."""
    return not isinstance(features, ExampleSpec) and not any(
        isinstance(value, FeatureSpec) for value in features.values()
    )
