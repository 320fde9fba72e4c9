"""Globally shuffled batches from a cache: their shapes, how fast they come, and the statistics of the build.

python -m examples.load_batches .demo/python_source
"""

from __future__ import annotations

import sys
import time

from beam_pipes import Cache, Loader
from beam_pipes.engine.account import Account


def main(path: str, *, batch_size: int = 32) -> None:
    """Loads one epoch of every split."""
    cache = Cache.open(path)
    for name in cache.splits:
        loader = Loader(cache[name], batch_size=batch_size, seed=0, epochs=1, last="partial")
        started = time.perf_counter()
        shapes, records, tokens = [], 0, 0
        for batch in loader:
            shapes.append(batch["tokens"].shape)
            records += len(batch["path"])
            tokens += int((batch["tokens"] != 0).sum())
        secs = time.perf_counter() - started
        print(f"{name}: {len(shapes)} shuffled batches of (records, tokens) {', '.join(map(str, shapes[:3]))}, …")
        print(f"  {records:,} records, {tokens:,} tokens in {secs:.2f} s: {records / secs:,.0f} records/s")
    print("statistics of the build:")
    for statistic in Account.from_json(cache.manifest.accounting).statistics():
        print("  " + str(statistic).replace("\n", "\n  "))
    print(f"the cache is in {cache.path}")


if __name__ == "__main__":
    main(sys.argv[1])
