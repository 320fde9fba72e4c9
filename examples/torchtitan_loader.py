"""Caches as the data of torchtitan: packed rows of tokens, with a state that continues after the last batch.

    config.dataloader = CacheDataLoader.Config(shares={"books/train": 0.7, "web/train": 0.3})

torchtitan 0.3.0 builds the loader of its rank, reads `({"input": …, "positions": …}, labels)`, saves `state_dict()`.
"""

from __future__ import annotations

import dataclasses
import json
import warnings
from collections.abc import Iterator
from typing import Any

import torch

from beam_pipes import Loader
from beam_pipes.loader import Mixture, pack

try:  # where it is since August 2026, and where it was before
    from torchtitan.components.data.loader import BaseDataLoader
except ImportError:
    try:
        from torchtitan.components.dataloader import BaseDataLoader
    except ImportError:
        warnings.warn("torchtitan is not installed: CacheDataLoader is a loader, but none that it builds", stacklevel=1)
        from torch.distributed.checkpoint.stateful import Stateful as BaseDataLoader

IGNORED = -100  # torchtitan's loss leaves these labels out


class CacheDataLoader(BaseDataLoader):  # type: ignore[misc, unused-ignore]
    """Batches of this rank: each global batch is the same for any number of ranks, so a run may resume on more."""

    @dataclasses.dataclass(kw_only=True, slots=True)
    class Config(getattr(BaseDataLoader, "Config", object)):  # type: ignore[misc]
        shares: dict[str, float] = dataclasses.field(default_factory=dict)  # split's path → its share of the tokens
        seed: int = 0
        epochs: int | None = None  # of each split; all ranks end after the same step

    def __init__(
        self, config: Config, *, dp_world_size: int, dp_rank: int, seq_len: int, local_batch_size: int, **_: Any
    ) -> None:
        plans = [(pack(path, sequence_length=seq_len + 1, feature="tokens"), at) for path, at in config.shares.items()]
        rates = [(plan, at * len(plan) / plan.totals["tokens"].tokens_out) for plan, at in plans]
        data = Mixture(rates, max_epochs=config.epochs)  # which counts those of its splits
        rows = local_batch_size * dp_world_size
        share: dict[str, Any] = {"host_index": dp_rank, "host_count": dp_world_size}
        self.loader = Loader(data, batch_size=rows, seed=config.seed, epochs=config.epochs and 1, workers=1, **share)

    def __iter__(self) -> Iterator[tuple[dict[str, torch.Tensor], torch.Tensor]]:
        for batch in self.loader:
            tokens, segments = (torch.from_numpy(batch[name]).long() for name in ("tokens", "segment_ids"))
            follows = (segments[:, 1:] == segments[:, :-1]) & (segments[:, 1:] > 0)  # within a document, no padding
            positions = torch.from_numpy(batch["positions"][:, :-1]).long()
            yield {"input": tokens[:, :-1], "positions": positions}, tokens[:, 1:].where(follows, IGNORED)

    def state_dict(self) -> dict[str, Any]:
        return {"loader": json.dumps(self.loader.state_dict())}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        if state_dict:  # the trainer gives an empty one where a checkpoint has no data
            self.loader.load_state_dict(json.loads(state_dict["loader"]))
