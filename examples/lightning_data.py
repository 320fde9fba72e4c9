"""A cache as the data of Lightning: `trainer.fit(model, CacheData(".demo/python_source", length=256))`.

Checkpoints hold the state of the loader, so `trainer.fit(…, ckpt_path=…)` continues after the last batch, in the middle
of an epoch too. Under DDP each process reads its own rows of each global batch. Tried with Lightning 2.6.6.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Iterator
from typing import Any

import lightning
import torch

from beam_pipes import Cache, Loader
from beam_pipes.loader import pack


class Epochs:
    """What Lightning iterates once for each epoch; every epoch has an order of its own."""

    def __init__(self, loader: Loader) -> None:
        self.loader = loader

    def __len__(self) -> int:
        return self.loader.steps_per_epoch or 0

    def __iter__(self) -> Iterator[dict[str, torch.Tensor]]:
        for batch in self.loader.epoch_batches():
            yield {name: torch.from_numpy(array) for name, array in batch.items()}


class CacheData(lightning.LightningDataModule):
    """Rows of `length` tokens of the splits `train` and `eval`: dicts of `tokens`, `segment_ids` and `positions`."""

    def __init__(self, cache: str | os.PathLike[str], *, length: int, batch_size: int = 16, seed: int = 0) -> None:
        super().__init__()
        self.cache, self.length, self.batch_size, self.seed = os.fspath(cache), length, batch_size, seed

    def batches(self, split: str, **options: Any) -> Loader:
        plan = pack(Cache.open(self.cache)[split], sequence_length=self.length, feature="tokens", overlong="split")
        return Loader(plan, batch_size=self.batch_size, epochs=None, workers=1, **options)

    @functools.cached_property
    def train(self) -> Loader:
        return self.batches("train", seed=self.seed)

    def train_dataloader(self) -> Epochs:
        return Epochs(self.train)

    def val_dataloader(self) -> Epochs:
        return Epochs(self.batches("eval", shuffle=False, last="partial"))

    def state_dict(self) -> dict[str, Any]:
        return self.train.state_dict()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.train.load_state_dict(state_dict)
