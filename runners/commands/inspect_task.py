"""The half of `beam-pipes inspect` that shows a task."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.table import Table

from beam_pipes.cache.output_file import writing_to
from beam_pipes.errors import DeclarationError
from beam_pipes.runners.commands.tables import console
from beam_pipes.runners.inspect_task import Inspection, feature_lines, inspect_task
from beam_pipes.tasks import TaskRegistry
from beam_pipes.tasks.caches.task_reference import import_modules


def show_task(
    name: str,
    *,
    modules: Sequence[str],
    split: str | None,
    num_examples: int,
    sequence_length: str | None,
    converter: str,
    html: str | None,
) -> None:
    """Prints a task's examples behind each step, or writes them to an HTML file."""
    import_modules(modules)
    task = TaskRegistry.get(name)
    inspection = inspect_task(
        task,
        split if split is not None else task.splits[0],
        num_examples=num_examples,
        sequence_length=parse_lengths(sequence_length),
        converter=None if converter == "none" else converter,
    )
    if html is not None:
        with writing_to(html):
            Path(html).write_text(inspection.to_html(), encoding="utf-8")
        console.print(f"{html}: {name}, {len(inspection.stages)} stages.", markup=False)
    else:
        _print(inspection)


def parse_lengths(text: str | None) -> dict[str, int] | None:
    """`inputs=512,targets=128` → `{"inputs": 512, "targets": 128}`."""
    if text is None:
        return None
    lengths = {}
    for part in text.split(","):
        feature, equals, length = part.partition("=")
        if not equals or not length.strip().isdecimal():
            raise DeclarationError(f"--sequence-length should be like inputs=512,targets=128, got {text!r}.")
        lengths[feature.strip()] = int(length)
    return lengths


def _print(inspection: Inspection) -> None:
    console.print(f"{inspection.task}, split {inspection.split}", markup=False)
    for stage in inspection.stages:
        console.rule(f"{stage.title}: {len(stage.examples)} examples", align="left")
        if stage.error is not None:
            console.print(stage.error, markup=False, style="red")
        for number, example in enumerate(stage.examples):
            table = Table(show_header=False, box=None, padding=(0, 2, 0, 0))
            for column in ("number", "feature", "type"):
                table.add_column(column, no_wrap=True)
            table.add_column("value", overflow="fold")
            for line, (feature, kind, value) in enumerate(feature_lines(example)):
                table.add_row(f"[{number}]" if not line else "", feature, kind, value)
            console.print(table)
