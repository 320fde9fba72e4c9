"""`fn.python_function`: a function of yours, for every sample."""

from __future__ import annotations

from typing import Any

from beam_pipes.graph.argument import Constant
from beam_pipes.graph.operator import Operator
from beam_pipes.graph.samples import Sample, Samples
from beam_pipes.graph.tensor_list import TensorList


class PythonFunction(Operator):
    """Calls a Python function for every sample, or once for the batch (`batch_processing=True`: with lists of samples).

    It has side effects as far as the graph knows: it runs even where nobody uses what it gives, in the order of the
    batches. It returns one array for each output; a tuple where there are several.

        python_function(image, function=lambda image: image[::-1])
    """

    inputs = ("input",)
    variadic = True
    optional_inputs = 1
    side_effects = True
    holds_gil = True
    positional = ("function",)
    function = Constant("callable", doc="what is called with NumPy arrays, one for each input")
    num_outputs = Constant("int", default=1, doc="how many arrays it returns")
    batch_processing = Constant("bool", default=False, doc="whether it takes and gives lists of all samples of a batch")

    def output_count(self) -> int:
        return int(self.num_outputs)

    def result(self, nodes: Any) -> Any:
        return None if not nodes else super().result(nodes)

    @property
    def mixes_samples(self) -> bool:
        return bool(self.batch_processing)

    def run(self, sample: Sample, *inputs: Any) -> Any:
        made = self.function(*inputs)
        if self.num_outputs == 0:
            return ()
        return made

    @property
    def run_batch(self) -> Any:
        return self._run_batch if self.batch_processing else None

    def _run_batch(self, samples: Samples, *columns: TensorList) -> Any:
        made = self.function(*[list(column) for column in columns])
        if self.num_outputs == 1:
            return TensorList(list(made))
        return tuple(TensorList(list(one)) for one in made) if self.num_outputs else ()
