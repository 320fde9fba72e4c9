"""Made by `python -m beam_pipes.transforms.operators.stubs` from the table of operators; not to be edited."""

from beam_pipes.transforms.ops import PeekImageShape as PeekImageShape
from beam_pipes.transforms.ops.experimental import decoders as decoders
from beam_pipes.transforms.ops.experimental import readers as readers
