"""A small language model of Python code, trained on packed rows: files share a row and do not see each other.

beam-pipes build examples.python_source:declaration --to .demo/python_source
python -m examples.code_model .demo/python_source
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn

from beam_pipes import Cache, Loader
from beam_pipes.loader import PackingPlan, pack
from beam_pipes.on_device import TorchDataLoader

VOCABULARY = 259  # bytes plus 3: see `ByteTokens`
Batch = dict[str, torch.Tensor]


def rows(cache: str, split: str, *, length: int) -> PackingPlan:
    """Rows of `length` tokens. Longer files are cut into pieces, each a segment of its own: nothing is lost."""
    return pack(Cache.open(cache)[split], sequence_length=length, feature="tokens", overlong="split")


def batches(plan: PackingPlan, *, batch_size: int, **options: Any) -> TorchDataLoader:
    """Batches of `tokens` (uint16), `segment_ids` and `positions` (int32), each (batch_size, length), as tensors."""
    return TorchDataLoader(Loader(plan, batch_size=batch_size, workers=1, **options))


class CodeModel(nn.Module):
    """A decoder of two layers: what is the next byte of this file?"""

    def __init__(self, *, length: int, width: int = 64, heads: int = 4, layers: int = 2) -> None:
        super().__init__()
        self.heads = heads
        self.bytes = nn.Embedding(VOCABULARY, width)
        self.places = nn.Embedding(length, width)
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(width, heads, 4 * width, dropout=0.0, batch_first=True, norm_first=True)
            for _ in range(layers)
        )
        self.logits = nn.Linear(width, VOCABULARY)

    def forward(self, batch: Batch) -> torch.Tensor:
        """(batch, length, VOCABULARY) logits of the byte behind each position."""
        segments = batch["segment_ids"]
        length = segments.shape[1]
        earlier = torch.ones(length, length, dtype=torch.bool).tril()
        seen = earlier & (segments[:, :, None] == segments[:, None, :])  # of its own file, up to itself
        hidden = self.bytes(batch["tokens"].long()) + self.places(batch["positions"].long())
        for layer in self.layers:
            hidden = layer(hidden, src_mask=~seen.repeat_interleave(self.heads, dim=0))
        return self.logits(hidden)


def loss_of(model: CodeModel, batch: Batch) -> torch.Tensor:
    """Nats a byte. The first byte of a file is predicted by nobody, and padding (segment 0) counts nowhere."""
    segments = batch["segment_ids"]
    counts = (segments[:, 1:] == segments[:, :-1]) & (segments[:, 1:] > 0)
    return nn.functional.cross_entropy(model(batch)[:, :-1][counts], batch["tokens"].long()[:, 1:][counts])


class Training:
    """Model, optimizer and loader; what `state_dict` gives is all it takes to go on as if nothing had happened."""

    def __init__(self, cache: str, *, length: int = 256, batch_size: int = 16, seed: int = 0) -> None:
        torch.manual_seed(seed)
        self.plan = rows(cache, "train", length=length)
        self.loader = batches(self.plan, batch_size=batch_size, seed=seed, epochs=None)
        self.model = CodeModel(length=length)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=3e-3)

    def steps(self, count: int) -> Iterator[float]:
        """Trains `count` steps and gives the loss of each."""
        iterator = iter(self.loader)
        for _ in range(count):
            loss = loss_of(self.model, next(iterator))
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            yield loss.item()

    def state_dict(self) -> dict[str, Any]:
        return {
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "loader": self.loader.state_dict(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.loader.load_state_dict(state["loader"])


@torch.no_grad()
def evaluate(model: CodeModel, loader: TorchDataLoader) -> float:
    """The mean loss over the batches of `loader`, in nats a byte."""
    losses = [loss_of(model, batch).item() for batch in loader]
    return sum(losses) / len(losses)


def main(arguments: list[str] | None = None) -> None:
    """Trains, saves what it takes to go on, and says how well the model does on files that it never saw."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cache", help="what examples.python_source built")
    parser.add_argument("--steps", type=int, default=100, help="training steps [100]")
    parser.add_argument("--checkpoint", help="a file to go on from, where it exists, and to save to")
    options = parser.parse_args(arguments)

    training = Training(options.cache)
    totals = training.plan.totals["tokens"]
    print(f"{totals.tokens_out:,} bytes in {len(training.plan):,} rows, {training.plan.waste:.2%} of them padding")
    if options.checkpoint and os.path.exists(options.checkpoint):
        training.load_state_dict(torch.load(options.checkpoint))
    for step, loss in enumerate(training.steps(options.steps), start=1):
        if step == 1 or step % 10 == 0:
            print(f"step {step}: {loss:.2f} nats a byte")
    if options.checkpoint:
        torch.save(training.state_dict(), options.checkpoint)
    unseen = batches(rows(options.cache, "eval", length=256), batch_size=16, last="partial")
    print(f"files that it never saw: {evaluate(training.model, unseen):.2f} nats a byte")


if __name__ == "__main__":
    main()
