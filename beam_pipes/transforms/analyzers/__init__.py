"""Analyzers: facts about all values, computed before the first record is transformed.

| analyzer | result |
| --- | --- |
| `Count` | how many values there are |
| `Moments` | mean and variance, for each dimension of vectors |
| `MinMax` | the smallest and the largest value, for each dimension of vectors |
| `Quantiles` | any quantile, within a rank error that the result states |
| `Vocabulary` | all tokens with their counts, most frequent first; cut by count or size |
| `TopK` | the most frequent values with their counts |
| `LengthHistogram` | the number of values of each length |
| `KeyedSample` | a sample of bounded size, independent of how the input is cut |
| `SentencePieceModel`, `TokenizersModel` | tokenizers, trained on such a sample |

All except `Quantiles` are exact, and all give the same bytes on every runner.
"""

from __future__ import annotations

from beam_pipes.transforms.analyzers.numbers import Bounds as Bounds
from beam_pipes.transforms.analyzers.numbers import Count as Count
from beam_pipes.transforms.analyzers.numbers import MinMax as MinMax
from beam_pipes.transforms.analyzers.numbers import Moments as Moments
from beam_pipes.transforms.analyzers.numbers import MomentSums as MomentSums
from beam_pipes.transforms.analyzers.quantiles import LengthHistogram as LengthHistogram
from beam_pipes.transforms.analyzers.quantiles import Lengths as Lengths
from beam_pipes.transforms.analyzers.quantiles import Quantiles as Quantiles
from beam_pipes.transforms.analyzers.quantiles import QuantileSketch as QuantileSketch
from beam_pipes.transforms.analyzers.samples import KeyedSample as KeyedSample
from beam_pipes.transforms.analyzers.samples import SentencePieceModel as SentencePieceModel
from beam_pipes.transforms.analyzers.samples import TokenizersModel as TokenizersModel
from beam_pipes.transforms.analyzers.vocabulary import TokenTable as TokenTable
from beam_pipes.transforms.analyzers.vocabulary import TopK as TopK
from beam_pipes.transforms.analyzers.vocabulary import Vocabulary as Vocabulary
