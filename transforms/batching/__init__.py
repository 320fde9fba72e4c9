"""Batch functions: they turn a list of examples into arrays, padding what differs in length."""

from transforms.batching.collate import default_collate as default_collate
from transforms.batching.sequences import batch_sequences as batch_sequences
from transforms.batching.spec import SpecBatcher as SpecBatcher
from transforms.batching.spec import batch_spec as batch_spec
from transforms.batching.text import TextIDBatcher as TextIDBatcher
from transforms.batching.text import batch_text_id as batch_text_id
from transforms.batching.wav import WavBatcher as WavBatcher
from transforms.batching.wav import batch_wav as batch_wav
