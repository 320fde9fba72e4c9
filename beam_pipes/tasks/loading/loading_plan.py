"""The plan by which cached examples of a task or mixture become rows, made before anything is read."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import TYPE_CHECKING, Literal

from beam_pipes.errors import LoaderError, TaskError
from beam_pipes.loader import Loader, PackingPlan
from beam_pipes.loader import Mixture as RowMixture
from beam_pipes.loader.steps import Last
from beam_pipes.tasks.steps.features import RowConverter, ShardInfo

if TYPE_CHECKING:
    from beam_pipes.loader.row_source import PaddedSplit
    from beam_pipes.tasks.providers.options import Exhaustion


@dataclasses.dataclass(frozen=True, kw_only=True)
class TokenTotals:
    """Tokens of one feature of the rows of a task.

    `tokens_in + tokens_added == tokens_out + truncated_tokens`, always.

    Attributes:
        tokens_in: in the cache; after the task's own Python steps, if it has any after the cut.
        tokens_added: inserted by the library's steps after the cut: EOS.
        tokens_out: in the rows.
        truncated_tokens: cut off, by steps or because an example was longer than its length.
        places: room in all rows: `rows · length`.
    """

    tokens_in: int
    tokens_added: int
    tokens_out: int
    truncated_tokens: int
    places: int

    @property
    def waste(self) -> float:
        """The share of padding."""
        return 1.0 - self.tokens_out / self.places if self.places else 0.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class TaskRows:
    """The rows of one task.

    Attributes:
        task: its name.
        rate: its share of the examples of the mixture, 0 to 1.
        examples: examples in the rows. Packed rows leave out those without any token.
        rows: number of rows.
        totals: feature of the rows → tokens; None if Python steps run on single rows when they are read, so that
            lengths are not known in advance.
        open: makes the rows, given a seed for the draws of steps: a packing plan or a `PaddedSplit`.
    """

    task: str
    rate: float
    examples: int
    rows: int
    totals: Mapping[str, TokenTotals] | None
    open: Callable[[int], PackingPlan | PaddedSplit] = dataclasses.field(repr=False)


@dataclasses.dataclass(frozen=True, kw_only=True)
class LoadingPlan:
    """The rows of a task or mixture, ready to be loaded. Made by `plan_loading`; `print(plan)` shows it.

    Attributes:
        name: of the task or mixture.
        split: name of the split.
        tasks: the rows of each task.
        exhaustion: what happens when a task has given all of its rows.
        converter: makes model features of rows.
    """

    name: str
    split: str
    tasks: tuple[TaskRows, ...]
    exhaustion: Exhaustion
    converter: RowConverter = dataclasses.field(repr=False)

    @property
    def rows(self) -> int:
        """Rows of all tasks together."""
        return sum(task.rows for task in self.tasks)

    @property
    def waste(self) -> float | None:
        """The share of padding among all places of all rows; None if lengths are not known before reading."""
        totals = self._all_totals()
        places = None if totals is None else sum(one.places for one in totals)
        if totals is None or places is None:
            return None
        return 1.0 - sum(one.tokens_out for one in totals) / places if places else 0.0

    @property
    def truncated_tokens(self) -> int | None:
        """Tokens that are in no row; None if lengths are not known before reading."""
        totals = self._all_totals()
        return None if totals is None else sum(one.truncated_tokens for one in totals)

    def _all_totals(self) -> list[TokenTotals] | None:
        if any(task.totals is None for task in self.tasks):
            return None
        return [totals for task in self.tasks for totals in (task.totals or {}).values()]

    def loader(
        self,
        *,
        batch_size: int,
        seed: int = 0,
        shuffle: bool = True,
        num_epochs: int | None = 1,
        shard_info: ShardInfo | None = None,
        last: Last = "drop",
        cu_seqlens: bool | Literal["padded"] = False,
        workers: int = 0,
        prefetch: int = 2,
    ) -> Loader:
        """A `beam_pipes.loader.Loader` of model batches: shuffled, mixed, resumable, without replacement.

        Args:
            batch_size: rows of a global batch, over all hosts.
            seed: same seed, same batches. It orders the rows, and keys the draws of steps.
            shuffle: a global shuffle of every task's rows, another one each epoch; False for the stored order.
            num_epochs: passes; None for endless, as always with `exhaustion="repeat"`.
            shard_info: the share of this host: rows of every global batch. By default that of this process under
                `torch.distributed` or `jax.distributed`, else everything; `ShardInfo(0, 1)` is everything.
            last, cu_seqlens, workers, prefetch: as `Loader` takes them.

        Raises:
            LoaderError: an option is out of range, or a rate is too small compared with the others.
        """
        repeats = self.exhaustion == "repeat"
        # A single endless task is repeated in a new order each time, like an epoch.
        return Loader(
            self.tasks[0].open(seed) if len(self.tasks) == 1 else self._mixture(seed),
            batch_size=batch_size,
            seed=seed,
            shuffle=shuffle,
            epochs=None if repeats else num_epochs,
            host_index=None if shard_info is None else shard_info.index,
            host_count=None if shard_info is None else shard_info.num_shards,
            last=last,
            transform=self.converter.convert_rows,
            cu_seqlens=cu_seqlens,
            workers=workers,
            prefetch=prefetch,
        )

    def _mixture(self, seed: int) -> RowMixture:
        # Rates count examples, and the loader mixes rows: a task with many examples per row needs fewer rows.
        rates = [Fraction(repr(task.rate)) * Fraction(task.rows, task.examples) for task in self.tasks]
        sources = [task.open(seed) for task in self.tasks]
        try:
            return RowMixture(list(zip(sources, rates, strict=True)), exhausted=self.exhaustion)
        except LoaderError as error:
            index = error.source
            name = f" (source {index} is task '{self.tasks[index].task}')" if isinstance(index, int) else ""
            raise LoaderError(
                f"mixture '{self.name}'{name}: {error}. Cap the rates of large tasks (mixing_rate_num_examples with "
                "maximum=… or temperature=…, or unimax_rates), or take tiny tasks out",
                source=index,
            ) from error

    def __str__(self) -> str:
        width = max(len(task.task) for task in self.tasks)
        head = f"{self.name}, split {self.split}: {self.rows:,} rows of {len(self.tasks)} tasks"
        lines = [
            head if self.waste is None else f"{head}, {self.waste:.2%} padding, {self.truncated_tokens:,} truncated"
        ]
        for task in self.tasks:
            line = f"  {task.task:{width}}  rate {task.rate:.4f}  {task.examples:,} examples in {task.rows:,} rows"
            for name, totals in (task.totals or {}).items():
                line += (
                    f"; {name}: {totals.tokens_in:,} tokens + {totals.tokens_added:,} added = {totals.tokens_out:,} in "
                    f"rows + {totals.truncated_tokens:,} truncated, {totals.waste:.2%} padding"
                )
            lines.append(line)
        return "\n".join(lines)


def no_rows(name: str, split: str) -> TaskError:
    """The error of a plan without any row."""
    return TaskError(f"the caches of '{name}' have no examples with tokens in split '{split}'", name=name, split=split)
