"""Made by `python -m beam_pipes.transforms.operators.stubs` from the table of operators; not to be edited."""

from beam_pipes.transforms.ops.decoders import Image as Image
from beam_pipes.transforms.ops.decoders import ImageCrop as ImageCrop
from beam_pipes.transforms.ops.decoders import ImageRandomCrop as ImageRandomCrop
from beam_pipes.transforms.ops.decoders import ImageSlice as ImageSlice
