"""Made by `python -m beam_pipes.transforms.operators.stubs` from the table of operators; not to be edited."""

from beam_pipes.transforms.fn.readers import video as video
