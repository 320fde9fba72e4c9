"""Packing: several records in a row of fixed length, planned from the lengths in the index; no data is rewritten.

An *entry* is a piece of a record in a row; its *segment* is its number in the row, from 1. A *bin* is a planned row.
`ALGORITHMS` are the algorithms that keep records whole.
"""

from __future__ import annotations

from beam_pipes.loader.packing.pack import ALGORITHMS as ALGORITHMS
from beam_pipes.loader.packing.pack import lower_bound as lower_bound
from beam_pipes.loader.packing.pack import pack as pack
from beam_pipes.loader.packing.plan import FeatureTotals as FeatureTotals
from beam_pipes.loader.packing.plan import PackingPlan as PackingPlan
