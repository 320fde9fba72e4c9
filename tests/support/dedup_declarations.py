"""Declarations that leave out planted duplicates; the input directory is named by an environment variable."""

from __future__ import annotations

import os
import random
from pathlib import Path
from typing import Any

from beam_pipes.building import Declaration
from beam_pipes.cache import FeatureSpec
from beam_pipes.sources import TextLines
from beam_pipes.transforms.by_key import SplitByKey
from beam_pipes.transforms.dedup import DropDuplicates, ExactDuplicates, NearDuplicates, plain_text
from beam_pipes.typed import DAGPipeline, Input, Output, Pipeline

INPUT_VARIABLE = "BEAM_PIPES_TEST_INPUT"


class Text(Pipeline):
    """A line unchanged; nothing for an empty one, and a value that is not text for a broken record."""

    input_type = output_type = str

    def transform(self, line: str) -> list[str]:
        if line == "broken":
            raise ValueError("broken")
        return [line] if line else self.drop("empty")


class ToExample(Pipeline):
    input_type, output_type = str, dict

    def __init__(self, name: str = "ToExample") -> None:
        super().__init__(name=name)

    def transform(self, line: str) -> list[dict[str, Any]]:
        return [{"text": line}]


def _declared(pipeline: DAGPipeline, **options: Any) -> Declaration:
    return Declaration(
        name="texts",
        source=TextLines(os.environ[INPUT_VARIABLE], pattern="**/*.txt"),
        pipeline=pipeline,
        **{
            "features": {"text": FeatureSpec("str")},
            "target_shard_bytes": 50_000,
            "on_error": "dead_letter",
            **options,
        },
    )


def unique(**options: Any) -> Declaration:
    """Exact and near duplicates, each found among all records."""
    exact = ExactDuplicates("exact", of=Text(), normalize=plain_text)
    near = NearDuplicates("near", of=Text(), threshold=0.75)
    drop, text, example = DropDuplicates(str, exact.result, near.result), Text(), ToExample()
    dag = {drop: Input(str), text: drop, example: text, Output("train"): example}
    return _declared(DAGPipeline(dag, "Unique"), analyzers=(exact, near), **options)


def unique_in_turn() -> Declaration:
    """Near duplicates are searched among the records left after removing exact ones."""
    exact = ExactDuplicates("exact", of=Text(), normalize=plain_text)
    drop_exact, text = DropDuplicates(str, exact.result, name="DropExact"), Text()
    left = DAGPipeline({drop_exact: Input(str), text: drop_exact, Output("text"): text}, "Left")
    near = NearDuplicates("near", of=left, threshold=0.75)
    drop, text, example = DropDuplicates(str, exact.result, near.result), Text(), ToExample()
    inner = DAGPipeline({drop: Input(str), text: drop, Output("text"): text}, "Inner")
    dag = {inner: Input(str), example: inner["text"], Output("train"): example}
    return _declared(DAGPipeline(dag, "Unique"), analyzers=(exact, near))


def split_by_cluster() -> Declaration:
    """All records stay, and similar ones are in the same split."""
    near = NearDuplicates("near", of=Text(), threshold=0.75)
    text, split = Text(), SplitByKey({"train": 0.5, "valid": 0.5}, key=near.result, type_=str)
    train, valid = ToExample(), ToExample(name="ToValid")
    dag = {text: Input(str), split: text, train: split["train"], valid: split["valid"]}
    outputs = {Output("train"): train, Output("valid"): valid}
    return _declared(
        DAGPipeline({**dag, **outputs}, "Split"),
        analyzers=(near,),
        features={split: {"text": FeatureSpec("str")} for split in ("train", "valid")},
    )


def write_planted(directory: Path, *, files: int = 6, seed: int = 0) -> None:
    """Files of 40 texts each: of every ten, four are new, three repeat a text (in other case), three nearly do."""
    rng = random.Random(seed)
    texts: list[list[str]] = []
    directory.mkdir(parents=True, exist_ok=True)
    for number in range(files):
        lines = []
        for position in range(40):
            if position % 10 < 4 or not texts:
                words = [f"w{rng.randrange(100_000)}" for _ in range(rng.randint(150, 200))]
                texts.append(words)
                lines.append(" ".join(words))
            elif position % 10 < 7:
                lines.append("  ".join(rng.choice(texts)).upper())
            else:
                words = list(rng.choice(texts))
                words[rng.randrange(len(words))] = f"x{rng.randrange(100_000)}"
                lines.append(" ".join(words))
        lines[20] = ""
        (directory / f"part-{number}.txt").write_text("\n".join(lines) + "\n")
