"""A cache as the data of torchtitan and of Lightning: the batches of a run, and those after it is resumed.

Tests that `tests/examples/test_training_stacks.py` runs in a process of their own.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lightning
import numpy as np
import pytest
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from torch.distributed.checkpoint.stateful import Stateful

from beam_pipes import DataLoader, FeatureSpec, write_cache
from examples.lightning_data import CacheData
from examples.torchtitan_loader import IGNORED, CacheDataLoader


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> str:
    """300 documents of tokens from 3 on, each a run of numbers with a unique first one."""
    path = tmp_path_factory.mktemp("stacks") / "cache"
    documents = [{"tokens": np.arange(3 + 40 * n, 3 + 40 * n + 5 + n % 30, dtype=np.uint16)} for n in range(300)]
    features = {"tokens": FeatureSpec("uint16", shape=(None,))}
    write_cache(path, {"train": documents[:260], "eval": documents[260:]}, features=features)
    return str(path)


class TestTorchtitan:
    @staticmethod
    def loader(cache: str, *, rank: int = 0, ranks: int = 1) -> CacheDataLoader:
        config = CacheDataLoader.Config(shares={f"{cache}/train": 1}, seed=5)
        return CacheDataLoader(
            config, dp_world_size=ranks, dp_rank=rank, tokenizer=None, seq_len=63, local_batch_size=4 // ranks
        )

    def test_labels_are_the_next_tokens_of_the_same_document(self, cache: str) -> None:
        loader = self.loader(cache)
        assert isinstance(loader, Stateful)

        for _, (inputs, labels) in zip(range(20), loader, strict=False):
            tokens, positions = inputs["input"], inputs["positions"]
            assert tokens.shape == positions.shape == labels.shape == (4, 63)
            assert {tokens.dtype, positions.dtype, labels.dtype} == {torch.int64}
            counts = labels != IGNORED
            assert torch.equal(labels[counts], tokens[counts] + 1)  # documents are runs of numbers
            assert torch.equal(positions[counts], (tokens[counts] - 3) % 40)
            ends = (tokens[:, :-1][~counts[:, :-1]] + 1) != tokens[:, 1:][~counts[:, :-1]]
            assert bool(ends.all())  # where a label is left out, another document or padding follows

    def test_a_checkpoint_continues_after_the_last_batch_on_any_number_of_ranks(
        self, cache: str, tmp_path: Path
    ) -> None:
        import torch.distributed.checkpoint as dcp

        uninterrupted = [labels for _, (_, labels) in zip(range(12), self.loader(cache), strict=False)]
        loader = self.loader(cache)
        iterator = iter(loader)
        for _ in range(5):
            next(iterator)
        dcp.save({"dataloader": loader}, checkpoint_id=str(tmp_path / "step-5"))

        ranks = [self.loader(cache, rank=rank, ranks=2) for rank in range(2)]
        for each in ranks:
            dcp.load({"dataloader": each}, checkpoint_id=str(tmp_path / "step-5"))
            each.load_state_dict({})
        resumed = [torch.cat([own for _, own in parts]) for _, *parts in zip(range(7), *ranks, strict=False)]

        assert all(torch.equal(a, b) for a, b in zip(resumed, uninterrupted[5:], strict=True))

    def test_ranks_of_a_finite_run_end_after_the_same_step(self, cache: str) -> None:
        config = CacheDataLoader.Config(shares={f"{cache}/train": 1}, seed=5, epochs=2)
        options = {"dp_world_size": 3, "tokenizer": None, "seq_len": 63, "local_batch_size": 2}
        steps = [sum(1 for _ in CacheDataLoader(config, dp_rank=rank, **options)) for rank in range(3)]
        assert steps[0] > 10 and len(set(steps)) == 1

    def test_shares_are_of_tokens(self, cache: str, tmp_path: Path) -> None:
        # Documents of 40 tokens, of which a row of 64 holds one: its rows have fewer tokens than those of the other.
        features = {"tokens": FeatureSpec("uint16", shape=(None,))}
        sparse = [{"tokens": np.ones(40, np.uint16)} for _ in range(300)]
        write_cache(tmp_path / "sparse", {"train": sparse}, features=features)
        config = CacheDataLoader.Config(shares={f"{cache}/train": 0.75, f"{tmp_path}/sparse/train": 0.25})
        loader = CacheDataLoader(config, dp_world_size=1, dp_rank=0, seq_len=63, local_batch_size=4)

        ours = theirs = 0
        for _, (inputs, _) in zip(range(100), loader, strict=False):
            ours += int((inputs["input"] > 1).sum())
            theirs += int((inputs["input"] == 1).sum())
        assert theirs / (ours + theirs) == pytest.approx(0.25, abs=0.01)


class Reader(lightning.LightningModule):
    """A model that records its batches."""

    def __init__(self) -> None:
        super().__init__()
        self.scores = torch.nn.Embedding(1 << 14, 2)
        self.trained: list[bytes] = []
        self.validated: list[int] = []

    def training_step(self, batch: dict[str, torch.Tensor]) -> torch.Tensor:
        self.trained.append(batch["tokens"].numpy().tobytes())
        return self.scores(batch["tokens"].long()).square().mean()

    def validation_step(self, batch: dict[str, torch.Tensor]) -> None:
        self.validated.append(int((batch["segment_ids"] > 0).sum()))

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.1)


def fit(cache: str, *, ckpt_path: str | None = None, **options: Any) -> tuple[Reader, lightning.Trainer]:
    quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False}
    trainer = lightning.Trainer(accelerator="cpu", max_epochs=3, **quiet, **options)
    model = Reader()
    trainer.fit(model, CacheData(cache, length=64, batch_size=8, seed=2), ckpt_path=ckpt_path, weights_only=False)
    return model, trainer


@pytest.mark.filterwarnings("ignore::UserWarning")
class TestLightning:
    def test_a_checkpoint_within_an_epoch_continues_after_the_last_batch(self, cache: str, tmp_path: Path) -> None:
        uninterrupted, trainer = fit(cache, enable_checkpointing=False)
        epoch = len(uninterrupted.trained) // 3
        assert trainer.global_step == 3 * epoch == len(set(uninterrupted.trained))  # each epoch in another order
        assert epoch > 8

        steps = epoch + 5
        saving = ModelCheckpoint(tmp_path, every_n_train_steps=steps, save_top_k=-1, filename="{step}")
        fit(cache, callbacks=[saving])
        resumed, _ = fit(cache, ckpt_path=str(tmp_path / f"step={steps}.ckpt"), enable_checkpointing=False)

        assert resumed.trained == uninterrupted.trained[steps:]

    def test_a_checkpoint_holds_the_state_of_a_loader_over_a_path(self, cache: str, tmp_path: Path) -> None:
        def fit_plainly(*, ckpt_path: Path | None = None, **options: Any) -> list[bytes]:
            quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False}
            loader = DataLoader.from_cache(f"{cache}/train", batch_size=8, seed=2, pad_to=64).to_torch()
            model = Reader()
            trainer = lightning.Trainer(accelerator="cpu", max_epochs=2, default_root_dir=tmp_path, **quiet, **options)
            trainer.fit(model, loader, ckpt_path=ckpt_path, weights_only=False)
            return model.trained

        uninterrupted = fit_plainly()  # with the checkpoint that Lightning writes after each epoch
        assert len(uninterrupted) == len(set(uninterrupted)) == 64  # each epoch in another order
        saving = ModelCheckpoint(tmp_path, every_n_train_steps=37, save_top_k=-1, filename="{step}")
        fit_plainly(callbacks=[saving])
        assert fit_plainly(ckpt_path=tmp_path / "step=37.ckpt") == uninterrupted[37:]

    def test_validation_reads_every_token_once(self, cache: str) -> None:
        model, _ = fit(cache, enable_checkpointing=False, num_sanity_val_steps=0)

        assert sum(model.validated) == 3 * sum(5 + n % 30 for n in range(260, 300))
