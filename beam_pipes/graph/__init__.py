"""The functional builder: a graph of operators, declared once by a function, run batch by batch.

| word | meaning |
| --- | --- |
| operator | a transformation of samples; `fn.flip(images)` calls one |
| data node | the output of an operator, before there is data |
| place | where an operator runs: offline (before the cut), host, device |
| cut | `cache(node)`: everything before it is computed once, by a job, and stored |

Operators are in `beam_pipes.transforms`: `from beam_pipes.transforms import fn, ops`.
"""

from __future__ import annotations

from beam_pipes.graph import experimental as experimental
from beam_pipes.graph import types as types
from beam_pipes.graph.conditions import cond as cond
from beam_pipes.graph.cut import cache as cache
from beam_pipes.graph.data_node import DataNode as DataNode
from beam_pipes.graph.data_node import newaxis as newaxis
from beam_pipes.graph.iterator import DALIClassificationIterator as DALIClassificationIterator
from beam_pipes.graph.iterator import DALIGenericIterator as DALIGenericIterator
from beam_pipes.graph.iterator import GraphIterator as GraphIterator
from beam_pipes.graph.iterator import LastBatchPolicy as LastBatchPolicy
from beam_pipes.graph.pipeline import Pipeline as Pipeline
from beam_pipes.graph.pipeline_def import do_not_convert as do_not_convert
from beam_pipes.graph.pipeline_def import pipeline_def as pipeline_def
from beam_pipes.graph.tensors import Outputs as Outputs
from beam_pipes.graph.tensors import TensorList as TensorList
