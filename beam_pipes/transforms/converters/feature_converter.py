"""The frame around every converter: checks, packing or padding, conversion, checks.

    task features ──check──▶ joined? ──pack or pad──▶ rows ──_convert_example──▶ model features ──check──▶

`_convert_example` is written once for NumPy arrays and TensorFlow tensors (see `array_ops`), for one row and for
batches of rows. `__call__` runs it inside a `tf.data.Dataset`, `convert_examples` over an iterator of NumPy examples,
`convert_rows` over rows that a packing plan assembled from a cache.
"""

from __future__ import annotations

import abc
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, TypeAlias, TypedDict

import numpy as np

from beam_pipes.errors import IncompleteConverterError, TaskError
from beam_pipes.extras import TfDataset, require
from beam_pipes.loader.row_source import MeasuredSplit
from beam_pipes.tasks.vocabularies.vocabulary import DType
from beam_pipes.transforms.converters.rows import check_rows, pack_examples, pad_example, with_feature_names
from beam_pipes.transforms.converters.validation import (
    TOKENS,
    Length,
    check_dataset,
    check_example,
    check_lengths,
    check_names,
    limits_of,
    one_length,
)
from beam_pipes.transforms.converters.validation import FeatureSpec as Spec

Array = Any  # np.ndarray or tf.Tensor
Features = Mapping[str, Array]


class ConverterOptions(TypedDict, total=False):
    """The options of every converter besides `pack`; see `FeatureConverter`."""

    use_custom_packing_ops: bool
    apply_length_check: bool
    bos_id: int
    passthrough_features: Mapping[str, Spec] | None


class FeatureConverter(abc.ABC):
    """Converts task features ("inputs", "targets") to what a model architecture reads.

    A subclass names `TASK_FEATURES`, `MODEL_FEATURES` and, to allow packing, `PACKING_FEATURE_DTYPES`, and overrides
    `get_model_feature_lengths` and one of two methods: `_convert_example(features)`, array arithmetic that serves
    TensorFlow and NumPy, or `_convert_features(dataset, task_feature_lengths)` for full control of the dataset.

    Args:
        pack: several examples share a row, distinguished by segment ids; False pads each example to the length.
        use_custom_packing_ops: accepted for compatibility; the standard operations suffice. For less padding than
            online packing, plan rows offline and convert them by `convert_rows`.
        apply_length_check: an example longer than its `task_feature_lengths` is an error; False cuts it.
        bos_id: the first id that the decoder reads in every sequence.
        passthrough_features: further features, by name, that are packed or padded and otherwise unchanged; they
            need a length too unless they have rank 0.

    Raises:
        TaskError (a ValueError): a class attribute is missing, or packing meets a feature without a sequence.
        IncompleteConverterError (a TypeError too): no method converts.
    """

    FeatureSpec: TypeAlias = Spec
    TASK_FEATURES: ClassVar[Mapping[str, Spec]]
    MODEL_FEATURES: ClassVar[Mapping[str, Spec]]
    PACKING_FEATURE_DTYPES: ClassVar[Mapping[str, object] | None] = None
    _ROWS_ARE_PACKED: ClassVar[bool] = False  # the task's own features say where each example begins

    def __init__(
        self,
        pack: bool = True,
        use_custom_packing_ops: bool = False,
        apply_length_check: bool = True,
        bos_id: int = 0,
        passthrough_features: Mapping[str, Spec] | None = None,
    ) -> None:
        self._pack = pack
        self._use_custom_packing_ops = use_custom_packing_ops
        self._apply_length_check = apply_length_check
        self._bos_id = bos_id
        self._passthrough_features = dict(passthrough_features or {})
        self._check_declaration()

    @property
    def pack(self) -> bool:
        return self._pack

    @property
    def apply_length_check(self) -> bool:
        return self._apply_length_check

    @property
    def bos_id(self) -> int:
        return self._bos_id

    @property
    def passthrough_features(self) -> dict[str, Spec]:
        return self._passthrough_features

    def __repr__(self) -> str:
        return f"{type(self).__name__}(pack={self._pack}, bos_id={self._bos_id})"

    def __call__(self, ds: TfDataset, task_feature_lengths: Mapping[str, Length]) -> TfDataset:
        """Converts a `tf.data.Dataset` of examples; rows have exactly the lengths of `get_model_feature_lengths`.

        Raises `TaskError` for features that are missing or of another dtype or rank; iterating raises
        `tf.errors.InvalidArgumentError` for an example that is too long.
        """
        lengths = self._checked_lengths(task_feature_lengths)
        expected = self._all_task_features()
        ds = self._validate_dataset(ds, expected, lengths, strict=False, error_label="input_validation")
        ds = self._convert_features(ds, lengths)
        model_lengths = self.get_model_feature_lengths(lengths)
        model_features = self._all_model_features()
        check_names(model_lengths, model_features, "model_feature_lengths")
        ds = self._validate_dataset(ds, model_features, model_lengths, strict=True, error_label="output_validation")
        packed = [f"{name}_{what}" for name in self._passthrough_features for what in ("segment_ids", "positions")]
        check_names(ds.element_spec, model_features, "output_dataset", allowed=packed if self._pack else ())
        return ds

    def convert_examples(
        self, examples: Iterable[Mapping[str, np.ndarray]], task_feature_lengths: Mapping[str, Length]
    ) -> Iterator[dict[str, np.ndarray]]:
        """Converts NumPy examples one row at a time, without TensorFlow; the same rows as `__call__`.

        Raises `TaskError` for the first example that does not match `TASK_FEATURES` or is too long.
        """
        self._check_has_array_form()
        lengths = self._checked_lengths(task_feature_lengths)
        return self._iterate_converted(examples, lengths)

    def convert_rows(self, rows: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Converts rows that are already laid out: one row or a batch, packed by a plan or padded.

        `rows` holds, for each task feature `f`: `f`, `f_segment_ids` and `f_positions` (module `rows` describes them
        and makes them); for a single task feature, as from packed loaders, plain `segment_ids` and
        `positions` suffice. Integers narrower than the declared dtype are widened; passthrough features are passed on.

        Raises `TaskError` for features that are missing or have another shape or dtype.
        """
        self._check_has_array_form()
        rows = self._widened(with_feature_names(rows, self.TASK_FEATURES))
        return self._with_passthrough(self._convert_example(self._with_seqio_keys(self._join_rows(rows))), rows)

    @abc.abstractmethod
    def get_model_feature_lengths(self, task_feature_lengths: Mapping[str, Length]) -> Mapping[str, Length]:
        """The length of every model feature, given those of the task features."""

    # Requirements on a cached split, for `beam_pipes.tasks.loading`.

    def for_lengths(self, task_feature_lengths: Mapping[str, Length]) -> FeatureConverter:
        """The converter that serves task features of these names: itself, unless it chooses among others."""
        return self

    def planned_features(self, output_features: Iterable[str]) -> Sequence[str]:
        """The task features that are read, given those that the task has."""
        return [*self.TASK_FEATURES, *self._passthrough_features]

    def planned_split(self, split: MeasuredSplit) -> MeasuredSplit:
        """The split (of a cache, or read like one) whose records become rows: a view that joins parts, if necessary.

        Raises `TaskError` for a split that this converter cannot take.
        """
        return split

    def planned_lengths(self, task_feature_lengths: Mapping[str, Length]) -> dict[str, int | None]:
        """Feature of the planned split → its length in a row; None for one that is taken unchanged.

        Raises `TaskError` for lengths that do not fit, and for a converter that works on tf.data only.
        """
        self._check_has_array_form()
        limits = self._limits(self._concat_task_feature_lengths(self._checked_lengths(task_feature_lengths)))
        lengths: dict[str, int | None] = {}
        for name, sizes in limits.items():
            if list(sizes) != [0]:
                raise TaskError(
                    f"{type(self).__name__}: rows of a cache are laid out along the first axis, and the length of "
                    f"{name!r} limits the axes {sorted(sizes)}; convert it with convert_examples, or a tf.data.Dataset",
                    feature=name,
                )
            lengths[name] = sizes[0]
        unlimited = [name for name in self._passthrough_features if name not in lengths]
        return {**lengths, **dict.fromkeys(unlimited)}

    @property
    def adds_segments(self) -> bool:
        """Whether rows reach `convert_rows` with segment ids and positions added, or as stored."""
        return not self._ROWS_ARE_PACKED

    def _validate_dataset(
        self,
        ds: TfDataset,
        expected_features: Mapping[str, Spec],
        expected_lengths: Mapping[str, Length],
        strict: bool,
        error_label: str,
    ) -> TfDataset:
        """Checks a dataset; see `check_dataset`."""
        return check_dataset(
            ds,
            expected_features,
            expected_lengths,
            error_label,
            check_length=self._apply_length_check,
            strict=strict,
        )

    def _convert_features(self, ds: TfDataset, task_feature_lengths: Mapping[str, Length]) -> TfDataset:
        """From checked examples to model features; the default packs or pads, then maps `_convert_example`."""
        tf = require("tensorflow", purpose="converting a tf.data.Dataset")
        rows = self._dataset_of_rows(ds, task_feature_lengths)

        def convert(features: Features) -> dict[str, Array]:
            return self._with_passthrough(self._convert_example(self._with_seqio_keys(features)), features)

        if type(self)._convert_example.__module__.startswith("beam_pipes."):
            # Nothing here branches on tensors, and AutoGraph would take a second per converter to find out.
            convert = tf.autograph.experimental.do_not_convert(convert)
        return rows.map(convert, num_parallel_calls=tf.data.AUTOTUNE)

    def _convert_example(self, features: Features) -> dict[str, Array]:
        """From one row (or a batch of rows) of task features to model features."""
        raise NotImplementedError(f"{type(self).__name__} should override _convert_example")

    def _with_seqio_keys(self, features: Features) -> Features:
        """Rows for `_convert_example`, with the keys that overrides written for SeqIO look for."""
        return features

    def _concat_and_add_masks(self, features: Features) -> Features:
        """Joins the features of one example before it is packed; by default they stay apart."""
        return features

    def _concat_task_feature_lengths(self, task_feature_lengths: Mapping[str, Length]) -> dict[str, Length]:
        """The lengths of what `_concat_and_add_masks` returns."""
        return dict(task_feature_lengths)

    def _join_rows(self, rows: Features) -> Features:
        """Checks rows, and joins those whose features were packed apart as `_concat_and_add_masks` joins examples."""
        check_rows(rows, self.TASK_FEATURES, type(self).__name__)
        return rows

    def _pack_or_pad(self, ds: TfDataset, packed_lengths: Mapping[str, Length]) -> TfDataset:
        """Packs (adding `f_segment_ids` and `f_positions`) or pads the features named in `packed_lengths`."""
        from beam_pipes.tasks.steps.packing import trim_and_pack_dataset
        from beam_pipes.tasks.steps.sequences import trim_and_pad_dataset

        if self._pack:
            one_lengths = {name: one_length(name, length) for name, length in packed_lengths.items()}
            return trim_and_pack_dataset(ds, one_lengths, self._use_custom_packing_ops)
        return trim_and_pad_dataset(ds, packed_lengths)

    def _dataset_of_rows(self, ds: TfDataset, lengths: Mapping[str, Length]) -> TfDataset:
        tf = require("tensorflow", purpose="converting a tf.data.Dataset")
        kept = list(self._all_task_features())
        row_lengths = self._concat_task_feature_lengths(lengths)
        limits = self._limits(row_lengths)
        adds_layout = not self._pack and not self._ROWS_ARE_PACKED

        def prepare(example: dict[str, object]) -> dict[str, object]:
            joined = dict(self._concat_and_add_masks({name: example[name] for name in kept}))
            if adds_layout:  # a padded example is a row of one segment: lengths, not zeros, tell its end
                for name, sizes in limits.items():
                    size = tf.shape(joined[name])[next(iter(sizes))]
                    joined[f"{name}_segment_ids"] = tf.ones([size], tf.int32)
                    joined[f"{name}_positions"] = tf.range(size)
            return joined

        if self._pack:
            padded: dict[str, Length] = dict(row_lengths)
        else:
            padded = {name: [sizes.get(axis) for axis in range(max(sizes) + 1)] for name, sizes in limits.items()}
            for name, sizes in limits.items() if adds_layout else ():
                length = next(iter(sizes.values()))
                padded |= {f"{name}_segment_ids": length, f"{name}_positions": length}
        prepared = ds.map(tf.autograph.experimental.do_not_convert(prepare), num_parallel_calls=tf.data.AUTOTUNE)
        return self._pack_or_pad(prepared, padded)

    def _iterate_converted(
        self, examples: Iterable[Mapping[str, np.ndarray]], lengths: Mapping[str, Length]
    ) -> Iterator[dict[str, np.ndarray]]:
        expected = self._all_task_features()
        row_lengths = self._concat_task_feature_lengths(lengths)
        limits = self._limits(row_lengths)

        def checked() -> Iterator[Features]:
            for example in examples:
                check_example(example, expected, lengths, "input_validation", check_length=self._apply_length_check)
                yield self._concat_and_add_masks({name: np.asarray(example[name]) for name in expected})

        if self._pack:
            one_lengths = {name: one_length(name, length) for name, length in row_lengths.items()}
            for row in pack_examples(checked(), one_lengths):
                yield self._with_passthrough(self._convert_example(self._with_seqio_keys(row)), row)
            return
        for joined in checked():
            padded = pad_example(joined, limits)
            if self._ROWS_ARE_PACKED:
                padded = {name: padded[name] for name in limits}
            row = {**joined, **padded}
            yield self._with_passthrough(self._convert_example(self._with_seqio_keys(row)), row)

    def _with_passthrough(self, converted: dict[str, Array], rows: Features) -> dict[str, Array]:
        for name in self._passthrough_features:
            if name not in rows:
                raise TaskError(f"passthrough feature {name!r} is missing; found {sorted(rows)}", feature=name)
            converted[name] = rows[name]
            if self._pack:
                converted[f"{name}_segment_ids"] = rows[f"{name}_segment_ids"]
                converted[f"{name}_positions"] = rows[f"{name}_positions"]
        return converted

    def _all_task_features(self) -> dict[str, Spec]:
        return {**self.TASK_FEATURES, **self._passthrough_features}

    def _all_model_features(self) -> dict[str, Spec]:
        features = dict(self.MODEL_FEATURES)
        if self._pack:
            for name, dtype in (self.PACKING_FEATURE_DTYPES or {}).items():
                features[name] = Spec(dtype=DType(dtype))
        return {**features, **self._passthrough_features}

    def _model_lengths(
        self, task_feature_lengths: Mapping[str, Length], length_of: Callable[[str], Length]
    ) -> dict[str, Length]:
        """The lengths of the model features, including packing features, and of passthrough features."""
        names = [*self.MODEL_FEATURES, *((self.PACKING_FEATURE_DTYPES or {}) if self._pack else {})]
        return {**{name: length_of(name) for name in names}, **self._passthrough_lengths(task_feature_lengths)}

    def _passthrough_lengths(self, task_feature_lengths: Mapping[str, Length]) -> dict[str, Length]:
        return {name: task_feature_lengths[name] for name in self._passthrough_features if name in task_feature_lengths}

    def _limits(self, row_lengths: Mapping[str, Length]) -> dict[str, dict[int, int]]:
        """The limited axes of packed or padded features; joined features are rows of tokens."""
        specs = self._all_task_features()
        limits = {name: limits_of(length, specs.get(name, TOKENS)) for name, length in row_lengths.items()}
        return {name: sizes for name, sizes in limits.items() if sizes}

    def _checked_lengths(self, task_feature_lengths: Mapping[str, Length]) -> dict[str, Length]:
        check_lengths(task_feature_lengths, self._all_task_features(), converter=type(self).__name__)
        for name, length in task_feature_lengths.items():
            if self._pack and isinstance(length, list | tuple):
                raise TaskError(
                    f"Packing fills one axis: the task_feature_lengths of {name!r} should be an integer, "
                    f"got {length!r}. Pass pack=False to pad several axes.",
                    feature=name,
                )
        return dict(task_feature_lengths)

    def _widened(self, rows: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        widened = {name: np.asarray(value) for name, value in rows.items()}
        for name, spec in self._all_task_features().items():
            if name not in widened or widened[name].dtype.name == spec.dtype:
                continue
            found, expected = widened[name].dtype, spec.dtype.as_numpy_dtype
            if not np.can_cast(found, expected, "safe"):
                raise TaskError(
                    f"{type(self).__name__}: rows have incorrect type for feature {name!r}: Got {found}, expected "
                    f"{spec.dtype}, which does not hold every {found}. Store it narrower, or convert it before.",
                    feature=name,
                )
            widened[name] = widened[name].astype(expected)
        return widened

    def _check_has_array_form(self) -> None:
        if type(self)._convert_features is not FeatureConverter._convert_features:
            raise TaskError(
                f"{type(self).__name__} overrides _convert_features, which works on tf.data only. Override "
                "_convert_example instead to convert NumPy examples and rows too.",
                converter=type(self).__name__,
            )

    def _check_declaration(self) -> None:
        name = type(self).__name__
        for attribute in ("TASK_FEATURES", "MODEL_FEATURES"):
            if getattr(self, attribute, None) is None:
                raise TaskError(f"{attribute} must be defined in the subclass. {name} lacks it.", converter=name)
        # Where abc has been made to let the class itself pass, as SeqIO's tests do, nothing is to be converted.
        if type(self) is not FeatureConverter and type(self)._convert_features is FeatureConverter._convert_features:
            if type(self)._convert_example is FeatureConverter._convert_example:
                raise IncompleteConverterError(
                    f"{name} must override _convert_example (or _convert_features).", converter=name
                )
        if not self._pack:
            return
        if self.PACKING_FEATURE_DTYPES is None:
            raise TaskError(
                "PACKING_FEATURE_DTYPES must be defined in the subclass if pack=True. "
                f"{name} lacks it: define it, or pass pack=False.",
                converter=name,
            )
        for feature, spec in self._all_task_features().items():
            if spec.sequence_dim != 0:
                raise TaskError(
                    "Packing is incompatible with pass-through features. Only those with a sequence along the first "
                    f"axis could be packed, and {feature!r} is {spec}. Pass pack=False, or give it a sequence axis.",
                    converter=name,
                    feature=feature,
                )


class GrainFeatureConverter(FeatureConverter):
    """Base of converters whose features are made by transformations of Grain.

    A subclass writes `get_grain_transforms`; its caller applies them to a Grain dataset of the task's examples, such as
    `grain.MapDataset.source(cache["train"])`. `convert_examples` of every other converter needs no Grain at all.
    """

    def get_grain_transforms(self, task_feature_lengths: Mapping[str, Length], batch_size: int) -> object:
        """The transformations that make batches of model features, in order."""
        raise NotImplementedError(
            "Need to implement the `get_grain_transforms` method which returns grain.Transformations."
        )
