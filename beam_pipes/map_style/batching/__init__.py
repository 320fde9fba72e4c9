"""Batch functions: they turn a list of examples into arrays, padding what differs in length."""

from beam_pipes.map_style.batching.collate import default_collate as default_collate
from beam_pipes.map_style.batching.sequences import batch_sequences as batch_sequences
from beam_pipes.map_style.batching.spec import SpecBatcher as SpecBatcher
from beam_pipes.map_style.batching.spec import batch_spec as batch_spec
from beam_pipes.map_style.batching.text import TextIDBatcher as TextIDBatcher
from beam_pipes.map_style.batching.text import batch_text_id as batch_text_id
from beam_pipes.map_style.batching.wav import WavBatcher as WavBatcher
from beam_pipes.map_style.batching.wav import batch_wav as batch_wav
