"""Made by `python -m beam_pipes.transforms.operators.stubs` from the table of operators; not to be edited."""

from beam_pipes.transforms.fn import peek_image_shape as peek_image_shape
from beam_pipes.transforms.fn.experimental import decoders as decoders
from beam_pipes.transforms.fn.experimental import readers as readers
