"""`SampleByKey`: a sample of keys, with all the records of each."""

from __future__ import annotations

from typing import Any

from beam_pipes.errors import DeclarationError
from beam_pipes.transforms.by_key.group_key import GroupKey, KeyOf
from beam_pipes.typed import Pipeline, RandomPartition


class SampleByKey(Pipeline):
    """Lets through the records of a fraction of all keys, and drops the others as `not sampled`.

        SampleByKey(0.1, key="user")     a tenth of the users, and everything of theirs

    The choice is a function of (seed, name, key), as that of `SplitByKey` is, and independent of it. A larger fraction
    keeps the sample and adds to it; so does more data.

    Args:
        fraction: of keys, from 0 to 1.
        key: the name of a field; `SOURCE_FILE`; the result of an analyzer of `beam_pipes.transforms.dedup`, whose
            clusters then stay together; or a function of the record that gives a str, bytes or an int.
        type_: the class of records. Default: dict, an example.
        seed: another seed, another sample.
        name: the stage's name.

    Raises `DeclarationError` where the fraction lies outside of 0 and 1, or a record has no key.
    """

    def __init__(
        self, fraction: float, *, key: KeyOf, type_: type = dict, seed: int = 0, name: str = "SampleByKey"
    ) -> None:
        if not isinstance(fraction, (int, float)) or not 0 <= fraction <= 1:
            raise DeclarationError(
                f"{name}: a fraction of keys lies between 0 and 1, got {fraction!r}. Example: 0.1 for a tenth.",
                stage=name,
            )
        super().__init__(input_type=type_, output_type=type_, name=name)
        self.fraction = fraction
        self.partition = RandomPartition(
            type_, ["sampled", "rest"], [fraction], seed=seed, key=GroupKey(key, stage=name), name=name
        )

    def transform(self, input_object: Any) -> list[Any]:
        sampled: list[Any] = self.partition.transform(input_object)["sampled"]
        return sampled or self.drop("not sampled")
