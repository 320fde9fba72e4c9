"""The loss of quality by a block-wise shuffle of a store with similar neighbours: every shard holds one value.

    python -m benchmarks.block_shuffle --json block_shuffle.json

`spread` is the standard deviation of batch means over that of a global shuffle (1 is ideal), `shards` the mean number
of shards that a batch draws from.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from beam_pipes.loader import BlockOrder, KeyedPermutation
from benchmarks import harness

WINDOWS = (1, 2, 4, 8, 16, 32, 64, 128)


def quality(shard_of_row: npt.NDArray[np.int64], batch_size: int) -> tuple[float, float]:
    """Standard deviation of batch means, and mean number of different shards in a batch."""
    batches = shard_of_row[: len(shard_of_row) // batch_size * batch_size].reshape(-1, batch_size)
    changes = np.diff(np.sort(batches, axis=1), axis=1) != 0
    return float(batches.mean(axis=1).std()), float(changes.sum(axis=1).mean() + 1)


def main(arguments: list[str] | None = None) -> dict[str, Any]:
    parser = harness.parser(__doc__)
    parser.add_argument("--shards", type=int, default=256)
    parser.add_argument("--records", type=int, default=256, help="records of a shard [256]")
    options = parser.parse_args(arguments)
    size = options.shards * options.records
    shard_of_record = np.repeat(np.arange(options.shards), options.records)
    everywhere = np.arange(size)
    results: dict[str, Any] = {"shards": options.shards, "records_per_shard": options.records}
    for batch_size in (32, 256):
        rows = shard_of_record[KeyedPermutation(size, seed=1).records(everywhere)]
        ideal, shards = quality(rows, batch_size)
        found: dict[str, Any] = {"global": {"spread": 1.0, "shards": round(shards, 1)}}
        for window in WINDOWS:
            order = BlockOrder([options.records] * options.shards, window=window, seed=1)
            spread, shards = quality(shard_of_record[order.records(everywhere)], batch_size)
            found[f"window_{window}"] = {"spread": round(spread / ideal, 2), "shards": round(shards, 1)}
        results[f"batch_of_{batch_size}"] = found
    harness.report(results, options.json)
    return results


if __name__ == "__main__":
    main()
