"""Made by `python -m beam_pipes.transforms.operators.stubs` from the table of operators; not to be edited."""

from beam_pipes.transforms.fn.decoders import image as image
from beam_pipes.transforms.fn.decoders import image_crop as image_crop
from beam_pipes.transforms.fn.decoders import image_random_crop as image_random_crop
from beam_pipes.transforms.fn.decoders import image_slice as image_slice
