"""Feature converters: from a task's features to those that a model architecture reads.

`CONVERTERS` is the table of them by name; `converter_named("lm")` looks one up.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from beam_pipes.checks import choice
from beam_pipes.errors import UnknownNameError
from beam_pipes.tasks.steps.packing import autoregressive_inputs as autoregressive_inputs
from beam_pipes.tasks.steps.packing import make_autoregressive_inputs as make_autoregressive_inputs
from beam_pipes.tasks.steps.packing import non_padding_position as non_padding_position
from beam_pipes.tasks.steps.packing import shift_right_by_one as shift_right_by_one
from beam_pipes.transforms.converters.decoder import DecoderFeatureConverter as DecoderFeatureConverter
from beam_pipes.transforms.converters.decoder import PassThroughFeatureConverter as PassThroughFeatureConverter
from beam_pipes.transforms.converters.decoder import (
    PrePackedEncDecFeatureConverter as PrePackedEncDecFeatureConverter,
)
from beam_pipes.transforms.converters.decoder import PrePackedLMFeatureConverter as PrePackedLMFeatureConverter
from beam_pipes.transforms.converters.decoder import (
    PrePackedPrefixLMFeatureConverter as PrePackedPrefixLMFeatureConverter,
)
from beam_pipes.transforms.converters.encoders import EncDecFeatureConverter as EncDecFeatureConverter
from beam_pipes.transforms.converters.encoders import EncoderFeatureConverter as EncoderFeatureConverter
from beam_pipes.transforms.converters.feature_converter import FeatureConverter as FeatureConverter
from beam_pipes.transforms.converters.language_models import LMFeatureConverter as LMFeatureConverter
from beam_pipes.transforms.converters.language_models import PrefixLMFeatureConverter as PrefixLMFeatureConverter
from beam_pipes.transforms.converters.language_models import (
    PrefixSuffixLMFeatureConverter as PrefixSuffixLMFeatureConverter,
)
from beam_pipes.transforms.converters.rows import join_segments as join_segments
from beam_pipes.transforms.converters.rows import pad_example as pad_example
from beam_pipes.transforms.converters.rows import padded_rows as padded_rows
from beam_pipes.transforms.converters.validation import FeatureSpec as FeatureSpec

if TYPE_CHECKING:
    from beam_pipes.transforms.converters.joined_split import JoinedSplit as JoinedSplit

CONVERTERS: Mapping[str, type[FeatureConverter]] = {
    "decoder": DecoderFeatureConverter,
    "enc_dec": EncDecFeatureConverter,
    "encoder": EncoderFeatureConverter,
    "lm": LMFeatureConverter,
    "pass_through": PassThroughFeatureConverter,
    "pre_packed_enc_dec": PrePackedEncDecFeatureConverter,
    "pre_packed_lm": PrePackedLMFeatureConverter,
    "pre_packed_prefix_lm": PrePackedPrefixLMFeatureConverter,
    "prefix_lm": PrefixLMFeatureConverter,
    "prefix_suffix_lm": PrefixSuffixLMFeatureConverter,
}


def converter_named(name: str) -> type[FeatureConverter]:
    """The converter class of a name in the table: `converter_named("lm")` → `LMFeatureConverter`.

    Raises `UnknownNameError` listing the names.
    """
    choice(name, of=sorted(CONVERTERS), what="a converter's name", error=UnknownNameError, name=name)
    return CONVERTERS[name]


def __getattr__(name: str) -> object:
    if name == "JoinedSplit":  # imports the cache, which other converters do not need
        from beam_pipes.transforms.converters.joined_split import JoinedSplit

        return JoinedSplit
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
