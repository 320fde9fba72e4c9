"""The native loader: shuffled, packed, mixed batches of NumPy arrays from a cache, exactly resumable. NumPy only.

A *row* is one of the `batch_size` elements of a batch: a record, or a packed bin of records. A *position* counts the
rows of an epoch in order, over all hosts. An *order* says which row is at a position. A *state* is a place in a
sequence of rows and the facts that determine the sequence.
"""

from __future__ import annotations

from beam_pipes.loader.iterator import LoaderIterator as LoaderIterator
from beam_pipes.loader.loader import Loader as Loader
from beam_pipes.loader.mesh import SequenceShare as SequenceShare
from beam_pipes.loader.mixture import Mixture as Mixture
from beam_pipes.loader.mixture import RateSchedule as RateSchedule
from beam_pipes.loader.order import ORDER_VERSION as ORDER_VERSION
from beam_pipes.loader.order import BalancedShuffle as BalancedShuffle
from beam_pipes.loader.order import BlockOrder as BlockOrder
from beam_pipes.loader.order import BlockShuffle as BlockShuffle
from beam_pipes.loader.order import KeyedPermutation as KeyedPermutation
from beam_pipes.loader.order import SequentialOrder as SequentialOrder
from beam_pipes.loader.packed_sequences import PackedSequences as PackedSequences
from beam_pipes.loader.packing.pack import pack as pack
from beam_pipes.loader.packing.plan import PackingPlan as PackingPlan
from beam_pipes.loader.random_access import RandomAccess as RandomAccess
from beam_pipes.loader.random_access import open_remote as open_remote
from beam_pipes.loader.random_access import random_access as random_access
from beam_pipes.loader.state import LoaderState as LoaderState
from beam_pipes.loader.steps import RowPlace as RowPlace
from beam_pipes.loader.token_batches import TokenBatches as TokenBatches
from beam_pipes.loader.windows import Windows as Windows
