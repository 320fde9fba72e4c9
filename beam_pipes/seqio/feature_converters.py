"""Feature converters. Names of SeqIO; each lives in a room of beam-pipes."""

from __future__ import annotations

from beam_pipes.seqio.reexport import reexport

HOMES = {
    "DecoderFeatureConverter": "beam_pipes.transforms.converters",
    "EncDecFeatureConverter": "beam_pipes.transforms.converters",
    "EncoderFeatureConverter": "beam_pipes.transforms.converters",
    "FeatureConverter": "beam_pipes.transforms.converters",
    "LMFeatureConverter": "beam_pipes.transforms.converters",
    "PassThroughFeatureConverter": "beam_pipes.transforms.converters",
    "PrePackedEncDecFeatureConverter": "beam_pipes.transforms.converters",
    "PrePackedLMFeatureConverter": "beam_pipes.transforms.converters",
    "PrePackedPrefixLMFeatureConverter": "beam_pipes.transforms.converters",
    "PrefixLMFeatureConverter": "beam_pipes.transforms.converters",
    "PrefixSuffixLMFeatureConverter": "beam_pipes.transforms.converters",
    "autoregressive_inputs": "beam_pipes.transforms.converters",
    "non_padding_position": "beam_pipes.transforms.converters",
}

__all__ = sorted(HOMES)
__getattr__, __dir__ = reexport(__name__, HOMES)
