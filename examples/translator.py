"""A small transformer that learns the mixture of `examples.translation`, and its evaluation on each of the tasks.

python -m examples.translator
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn

from beam_pipes import tasks
from beam_pipes.evaluation import evaluate_mixture
from beam_pipes.on_device import TorchDataLoader
from beam_pipes.transforms.converters import EncDecFeatureConverter
from examples import translation

LENGTHS = {"inputs": 96, "targets": 48}  # places of a packed row: about eight examples
LONGEST_ANSWER = 40
Batch = dict[str, torch.Tensor]


class Translator(nn.Module):
    """Encoder and decoder of two layers each; segments of packed rows attend to themselves only."""

    def __init__(self, vocabulary_size: int, *, width: int = 96, heads: int = 4) -> None:
        super().__init__()
        self.heads = heads
        self.tokens = nn.Embedding(vocabulary_size, width)
        self.places = nn.Embedding(max(LENGTHS.values()), width)
        self.transformer = nn.Transformer(width, heads, 2, 2, 4 * width, 0.0, batch_first=True)
        self.logits = nn.Linear(width, vocabulary_size)

    def forward(self, batch: Batch) -> torch.Tensor:
        """(batch, length, vocabulary) logits of `decoder_target_tokens`."""
        sides = [
            self.tokens(batch[f"{side}_input_tokens"].long()) + self.places(batch[f"{side}_positions"].long())
            for side in ("encoder", "decoder")
        ]
        read, written = batch["encoder_segment_ids"], batch["decoder_segment_ids"]
        later = torch.ones(written.shape[1], written.shape[1], dtype=torch.bool).triu(1)
        hidden = self.transformer(
            *sides,
            src_mask=self._hidden_from(read, read),
            tgt_mask=self._hidden_from(written, written, later),
            memory_mask=self._hidden_from(written, read),
        )
        return self.logits(hidden)

    def _hidden_from(self, here: torch.Tensor, there: torch.Tensor, also: torch.Tensor | None = None) -> torch.Tensor:
        """(batch · heads, here, there): what a place must not see. Padding may see anything: nobody sees it."""
        hidden = (here[:, :, None] != there[:, None, :]) & (here[:, :, None] > 0)
        return (hidden if also is None else hidden | also).repeat_interleave(self.heads, dim=0)

    @torch.no_grad()
    def answers(self, inputs: torch.Tensor, *, end: int) -> list[list[int]]:
        """The most likely token at each step, up to `end`, for inputs (batch, length), padded with 0."""
        count, length = inputs.shape
        answer = torch.zeros(count, 1, dtype=torch.int64)
        for _ in range(LONGEST_ANSWER):
            batch = {
                "encoder_input_tokens": inputs,
                "encoder_segment_ids": (inputs > 0).int(),
                "encoder_positions": torch.arange(length).expand(count, -1),
                "decoder_input_tokens": answer,
                "decoder_segment_ids": torch.ones_like(answer),
                "decoder_positions": torch.arange(answer.shape[1]).expand(count, -1),
            }
            answer = torch.cat([answer, self(batch)[:, -1:].argmax(dim=-1)], dim=1)
            if (answer == end).any(dim=1).all():
                break
        return [[*row, end][: [*row, end].index(end)] for row in answer[:, 1:].tolist()]


def train(model: Translator, loader: TorchDataLoader, steps: int) -> Iterator[float]:
    """Trains `steps` steps and gives the loss of each, in nats a token."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 2e-3, total_steps=steps)
    iterator = iter(loader)
    for _ in range(steps):
        batch = next(iterator)
        counts = batch["decoder_loss_weights"] > 0
        loss = nn.functional.cross_entropy(model(batch)[counts], batch["decoder_target_tokens"].long()[counts])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        yield loss.item()


def evaluate(model: Translator, *, num_examples: int | None = None) -> dict[str, dict[str, Any]]:
    """Task → metric → value, on the validation splits: pairs that no training batch holds."""
    end = translation.vocabulary.eos_id
    assert end is not None

    def predict(dataset: Any) -> list[tuple[int, list[int]]]:
        found: list[tuple[int, list[int]]] = []
        for indices, batch in dataset.batch(50):
            inputs = torch.from_numpy(batch["encoder_input_tokens"].astype("int64"))
            found += zip(indices.tolist(), model.answers(inputs, end=end), strict=True)
        return found

    converter = EncDecFeatureConverter(pack=False)
    return evaluate_mixture("numbers", converter, predict_fn=predict, use_cached=True, num_examples=num_examples)


def main(arguments: list[str] | None = None) -> None:
    """Shows the rows that the mixture is packed into, trains, evaluates, and translates."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=400, help="training steps [400]")
    parser.add_argument("--examples", type=int, help="validation examples of each task [all]")
    options = parser.parse_args(arguments)

    torch.manual_seed(0)
    tasks.add_global_cache_dirs([str(translation.CACHES)])
    plan = tasks.plan_loading("numbers", LENGTHS, EncDecFeatureConverter(), exhaustion="repeat")
    print(plan)
    loader = TorchDataLoader(plan.loader(batch_size=16, seed=0, num_epochs=None, workers=1))
    model = Translator(translation.vocabulary.vocab_size)
    for step, loss in enumerate(train(model, loader, options.steps), start=1):
        if step == 1 or step % 50 == 0:
            print(f"step {step}: {loss:.3f} nats a token")
    for task, metrics in evaluate(model, num_examples=options.examples).items():
        print(f"{task}: {metrics['right']:.0f} of 100 right, letters {metrics['alike']:.0f} % alike")
    text = "translate English to French: four thousand three hundred twenty-one"
    answer = model.answers(torch.tensor([translation.vocabulary.encode(text)]), end=1)[0]
    print(f"{text} → {translation.vocabulary.decode(answer)}")


if __name__ == "__main__":
    main()
