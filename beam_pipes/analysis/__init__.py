"""Analysis passes: computations over all records that must finish before the first record is transformed.

| word | meaning |
| --- | --- |
| analyzer | what to compute: a vocabulary, moments, duplicates; plain data, declared beside the pipeline |
| accumulator | what an analyzer learned from one source shard; a small file that later builds reuse |
| result | the accumulators of all source shards, merged: a file or a directory, an asset of the cache |
| round | analyzers that do not need each other's results; they read the input together, once |

`Declaration(analyzers=(...))` runs them before its pipeline; stages of the pipeline hold `analyzer.result`.
"""

from __future__ import annotations

from beam_pipes.analysis.analyzer import Accumulator as Accumulator
from beam_pipes.analysis.analyzer import Analyzer as Analyzer
from beam_pipes.analysis.analyzer import BoundResult as BoundResult
from beam_pipes.analysis.analyzer import Result as Result
from beam_pipes.errors import AnalysisError as AnalysisError
