"""Feature converters. Names of SeqIO; each lives in a room of beam-pipes."""

from __future__ import annotations

from beam_pipes.seqio.reexport import reexport

HOMES = {
    "DecoderFeatureConverter": "transforms.converters",
    "EncDecFeatureConverter": "transforms.converters",
    "EncoderFeatureConverter": "transforms.converters",
    "FeatureConverter": "transforms.converters",
    "LMFeatureConverter": "transforms.converters",
    "PassThroughFeatureConverter": "transforms.converters",
    "PrePackedEncDecFeatureConverter": "transforms.converters",
    "PrePackedLMFeatureConverter": "transforms.converters",
    "PrePackedPrefixLMFeatureConverter": "transforms.converters",
    "PrefixLMFeatureConverter": "transforms.converters",
    "PrefixSuffixLMFeatureConverter": "transforms.converters",
    "autoregressive_inputs": "transforms.converters",
    "non_padding_position": "transforms.converters",
}

__all__ = sorted(HOMES)
__getattr__, __dir__ = reexport(__name__, HOMES)
