"""Padding and time of the packing algorithms on six distributions of document lengths.

    python -m benchmarks.packing --documents 1000000 --json packing.json

`waste` is the share of padding in all rows; `waste_of_bound` that of the Martello-Toth lower bound, which no packing
can beat; `rows_to_bound` is rows over the bound. `step_cost` compares steps of 64 rows under a global shuffle and under
`BalancedShuffle`: the largest cost of a step over the mean, and the standard deviation over the mean.
`token_batches` compares `TokenBatches` with shuffled batches of 64 rows: the share of padding, and milliseconds of a
batch.
`with_bos` packs documents of the lengths of web pages so that every row and piece begins with BOS: the shares of
padding, of added BOS and of lost tokens, beside those of filling rows by cropping documents as nanochat's loader does.
`concat_then_split_seconds` are those of two plans of all documents (goal 2 s for 10^7).
"""

from __future__ import annotations

import bisect
import dataclasses
import itertools
import tempfile
import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from beam_pipes.cache import Cache, FeatureSpec, write_cache
from beam_pipes.loader import Loader, TokenBatches
from beam_pipes.loader.order import BalancedOrder, KeyedPermutation, Order
from beam_pipes.loader.packing import ALGORITHMS, lower_bound, pack
from benchmarks import harness

Lengths = npt.NDArray[np.int64]


def distributions(documents: int, capacity: int) -> dict[str, Lengths]:
    """Lengths in [1, capacity] of six kinds of corpora."""
    rng = np.random.default_rng(20261121)
    draws: dict[str, Callable[[], npt.NDArray[Any]]] = {
        "lognormal": lambda: np.exp(rng.normal(np.log(capacity / 8), 1.0, documents)),
        "uniform": lambda: rng.integers(1, capacity + 1, documents),
        "exponential": lambda: rng.exponential(capacity / 6, documents),
        "pareto": lambda: (rng.pareto(1.2, documents) + 1) * capacity / 64,
        "bimodal": lambda: np.where(
            rng.random(documents) < 0.5,
            rng.normal(capacity / 16, capacity / 64, documents),
            rng.normal(0.7 * capacity, capacity / 16, documents),
        ),
        "just_over_a_third": lambda: rng.integers(capacity // 3 + 1, capacity // 2, documents),
    }
    return {name: np.clip(draw().astype(np.int64), 1, capacity) for name, draw in draws.items()}


def measure(lengths: Lengths, capacity: int, algorithms: list[str]) -> dict[str, Any]:
    """Rows, padding and seconds of each algorithm on one list of lengths."""
    tokens = int(lengths.sum())
    bound = lower_bound(lengths, capacity)
    result: dict[str, Any] = {
        "documents": len(lengths),
        "tokens": tokens,
        "lower_bound": bound,
        "waste_of_bound": 1 - tokens / (bound * capacity),
    }
    for name in algorithms:
        started = time.perf_counter()
        bins = ALGORITHMS[name](lengths, capacity)
        seconds = time.perf_counter() - started
        rows = int(bins.max()) + 1
        filled = np.bincount(bins, weights=lengths)
        if len(filled) != rows or filled.max() > capacity or int(filled.sum()) != tokens:
            raise AssertionError(f"{name} lost tokens or overfilled a row")
        result[name] = {
            "rows": rows,
            "waste": 1 - tokens / (rows * capacity),
            "rows_to_bound": rows / bound,
            "seconds": round(seconds, 3),
        }
    return result


def step_cost(lengths: Lengths, capacity: int, rows: int) -> dict[str, Any]:
    """How unequal the costs of steps are, by the order of rows; a row costs the sum of its squared lengths."""
    bins = ALGORITHMS["best_fit"](lengths, capacity)
    costs = np.bincount(bins, weights=lengths.astype(np.float64) ** 2).astype(np.int64)
    orders: dict[str, Order] = {
        "global": KeyedPermutation(len(costs), seed=1),
        "balanced": BalancedOrder(costs, rows=rows, seed=1),
    }
    result: dict[str, Any] = {"rows": len(costs), "rows_per_step": rows}
    for name, order in orders.items():
        records = order.records(np.arange(len(costs)))
        if len(np.unique(records)) != len(costs):
            raise AssertionError(f"the {name} order lost rows")
        of_step = costs[records[: len(costs) // rows * rows]].reshape(-1, rows).sum(axis=1)
        of_half = costs[records[: len(costs) // rows * rows]].reshape(-1, 2, rows // 2).sum(axis=2)
        result[name] = {
            "max_to_mean": float(of_step.max() / of_step.mean()),
            "deviation": float(of_step.std() / of_step.mean()),
            "slower_of_two_hosts": float((of_half.max(axis=1) * 2 / of_step).mean()),
        }
    return result


@dataclasses.dataclass(frozen=True, eq=False)
class Corpus:
    """A split with nothing but lengths, which are all that `pack` reads."""

    tokens: Lengths
    name: str = "train"
    manifest_id: str = "lengths"
    spec: Mapping[str, FeatureSpec] = dataclasses.field(
        default_factory=lambda: {"tokens": FeatureSpec("int32", shape=(None,))}
    )

    def __len__(self) -> int:
        return len(self.tokens)

    def lengths(self, feature: str) -> Lengths:
        return self.tokens


def concat_then_split_seconds(documents: int, capacity: int) -> list[float]:
    """Seconds of two plans of documents one after the other: the first also pays for touching its memory first."""
    corpus = Corpus(distributions(documents, capacity)["lognormal"])
    seconds = []
    for _ in range(2):
        started = time.perf_counter()
        plan = pack(corpus, sequence_length=capacity, algorithm="concat_then_split")
        seconds.append(round(time.perf_counter() - started, 3))
        if plan.totals["tokens"].tokens_out != int(corpus.tokens.sum()) or len(plan) != plan.lower_bound:
            raise AssertionError("concat_then_split lost tokens or left padding")
        del plan
    return seconds


def web_pages(documents: int) -> Lengths:
    """Lengths in tokens like those of filtered web pages: median 650, mean 1,150, longest 200,000."""
    drawn = np.exp(np.random.default_rng(20261127).normal(np.log(650), 1.07, documents))
    return np.clip(drawn, 20, 200_000).astype(np.int64)


def with_bos(documents: int, capacity: int) -> dict[str, Any]:
    """Rows of which every piece begins with BOS: shares of padding and BOS, and of tokens lost to cropping."""
    corpus = Corpus(web_pages(documents))
    started = time.perf_counter()
    plan = pack(corpus, sequence_length=capacity, bos_id=1)
    seconds = time.perf_counter() - started
    totals = plan.totals["tokens"]
    if totals.tokens_out != int(corpus.tokens.sum()):
        raise AssertionError("a packing with BOS lost tokens")
    return {
        "rows": len(plan),
        "padding": plan.waste,
        "bos": totals.added_tokens / (len(plan) * capacity),
        "lost": plan.truncated_tokens / totals.tokens_in,
        "seconds": round(seconds, 3),
        "lost_by_cropping": lost_by_cropping(corpus.tokens[:200_000] + 1, capacity + 1),
    }


def lost_by_cropping(lengths: Lengths, capacity: int, buffered: int = 1000) -> float:
    """The share of tokens lost if each row takes the longest of some documents that fits, and then crops the shortest.

    `lost_by_cropping([6, 7], 10)` → 3 / 13: the row holds 7 tokens, and 3 of the 6.
    """
    coming = iter(lengths.tolist())
    waiting = sorted(itertools.islice(coming, buffered))
    lost = taken = 0
    while waiting:
        space = capacity
        while space and waiting:
            at = max(bisect.bisect_right(waiting, space) - 1, 0)
            length = waiting.pop(at)
            for more in itertools.islice(coming, 1):
                bisect.insort(waiting, more)
            taken += min(length, space)
            lost += max(0, length - space)
            space -= min(length, space)
    return lost / (lost + taken)


def token_batches(documents: int, max_tokens: int = 16_384) -> dict[str, Any]:
    """Batches by a token budget beside shuffled batches of 64: share of padding, milliseconds of a batch."""
    lengths = np.minimum(distributions(documents, 1024)["lognormal"], 1024)
    with tempfile.TemporaryDirectory() as directory:
        write_cache(f"{directory}/cache", {"train": ({"tokens": np.ones(n, np.int32)} for n in lengths.tolist())})
        split = Cache.open(f"{directory}/cache")["train"]
        found: dict[str, Any] = {"documents": documents, "max_tokens": max_tokens}
        for name, batch_size in (("by_tokens", TokenBatches(max_tokens=max_tokens)), ("rows_of_64", 64)):
            tokens = places = batches = 0
            started = time.perf_counter()
            for batch in Loader(split, batch_size=batch_size, last="partial"):
                tokens += int(batch["tokens"].sum())
                places += batch["tokens"].size
                batches += 1
            seconds = time.perf_counter() - started
            if tokens != int(lengths.sum()):
                raise AssertionError(f"{name} lost tokens")
            found[name] = {"padding": round(1 - tokens / places, 4), "ms_per_batch": round(1000 * seconds / batches, 3)}
    return found


def main(arguments: list[str] | None = None) -> dict[str, Any]:
    parser = harness.parser(__doc__)
    parser.add_argument("--documents", type=int, default=1_000_000)
    parser.add_argument("--sequence-length", type=int, default=2048)
    parser.add_argument("--algorithms", nargs="+", choices=sorted(ALGORITHMS), default=["best_fit", "next_fit"])
    options = parser.parse_args(arguments)
    results = {
        name: measure(lengths, options.sequence_length, options.algorithms)
        for name, lengths in distributions(options.documents, options.sequence_length).items()
    }
    worst = (
        max(result["best_fit"]["rows_to_bound"] for result in results.values())
        if "best_fit" in options.algorithms
        else None
    )
    whole = {
        "sequence_length": options.sequence_length,
        "best_fit_worst_rows_to_bound": worst,
        "step_cost": step_cost(
            distributions(options.documents, options.sequence_length * 4)["lognormal"], options.sequence_length * 4, 64
        ),
        "token_batches": token_batches(min(options.documents, 60_000)),
        "with_bos": {capacity: with_bos(options.documents, capacity) for capacity in (2048, 8192)},
        "concat_then_split_seconds": concat_then_split_seconds(options.documents, options.sequence_length),
        "distributions": results,
    }
    harness.report(whole, options.json)
    return whole


if __name__ == "__main__":
    main()
