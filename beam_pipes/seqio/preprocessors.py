"""Preprocessors. Names of SeqIO; each lives in a room of beam-pipes."""

from __future__ import annotations

from beam_pipes.seqio.reexport import reexport

HOMES = {
    "append_eos": "beam_pipes.tasks.preprocessors",
    "append_eos_after_trim": "beam_pipes.tasks.preprocessors",
    "append_eos_after_trim_impl": "beam_pipes.tasks.preprocessors",
    "apply_feature_converter": "beam_pipes.tasks.preprocessors",
    "preprocess_tensorflow_examples": "beam_pipes.tasks.preprocessors",
    "print_dataset": "beam_pipes.tasks.preprocessors",
    "rekey": "beam_pipes.tasks.preprocessors",
    "tokenize": "beam_pipes.tasks.preprocessors",
    "tokenize_and_append_eos": "beam_pipes.tasks.preprocessors",
    "tokenize_impl": "beam_pipes.tasks.preprocessors",
    "truncate_inputs_left": "beam_pipes.tasks.preprocessors",
}

__all__ = sorted(HOMES)
__getattr__, __dir__ = reexport(__name__, HOMES)
