"""Declarations as Beam PTransforms, and caches in Beam pipelines.

| word | meaning |
| --- | --- |
| shard batch | the element: a numbered batch of records of one source shard, or the shard's end mark |
| part | an encoded batch (or several) of a shard whose batches a runner broke apart |

Every unit of a declaration becomes one labelled PTransform over shard batches. No record is ever shuffled: only the
list of source shards, completions, and, if a runner forces it, parts.
"""

from __future__ import annotations

from beam_pipes.beam.build_graph import build_graph as build_graph
from beam_pipes.beam.letters import element_of as element_of
from beam_pipes.beam.lower import FailedElement as FailedElement
from beam_pipes.beam.lower import Lowered as Lowered
from beam_pipes.beam.lower import lower as lower
from beam_pipes.beam.read_from_cache import YAML_PROVIDERS as YAML_PROVIDERS
from beam_pipes.beam.read_from_cache import ReadFromCache as ReadFromCache
from beam_pipes.beam.read_from_cache import ReadFromSource as ReadFromSource
from beam_pipes.beam.regrouped import build_regrouped_graph as build_regrouped_graph
from beam_pipes.beam.write_to_cache import WriteToCache as WriteToCache
from beam_pipes.beam.write_to_cache import WrittenCache as WrittenCache
