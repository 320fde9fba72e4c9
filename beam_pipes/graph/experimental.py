"""`experimental.pipeline_def`: as `pipeline_def`, and with debug mode."""

from __future__ import annotations

from typing import Any

from beam_pipes.graph.debug import DebugPipeline
from beam_pipes.graph.pipeline_def import FunctionPipeline, decorator


def pipeline_def(fn: Any = None, /, *, debug: bool = False, enable_conditionals: bool = False, **options: Any) -> Any:
    """`graph.pipeline_def`, and with `debug=True` operators that run as soon as they are called.

        @experimental.pipeline_def(batch_size=8, debug=True)
        def my_pipe():
            files, labels = fn.readers.file(file_root=root)
            images = fn.decoders.image(files)
            print(images.get()[0].shape)
            return images, labels

    `node.get()` gives the data of the batch. A list of arrays (NumPy, torch, JAX), one a sample, may be given where a
    data node is expected. The function runs once for each batch, and calls the same operators in the same order; its
    numbers are those of the compiled graph. Sources are called before data is looked at. Slow: nothing is pruned,
    nothing made ahead.
    """
    make = DebugPipeline if debug else FunctionPipeline
    return decorator(fn, enable_conditionals=enable_conditionals, options=options, make=make)
