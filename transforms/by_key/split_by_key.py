"""`SplitByKey`: all records of a key go to the same split."""

from __future__ import annotations

from collections.abc import Mapping

from beam_pipes.engine.signature import brief
from beam_pipes.errors import DeclarationError
from beam_pipes.transforms.by_key.group_key import GroupKey, KeyOf
from beam_pipes.typed import RandomPartition


class SplitByKey(RandomPartition):
    """Sends each record to one of the named outputs, by its key: no user is in two splits.

        split = SplitByKey({"train": 0.98, "valid": 0.02}, key="user")
        DAGPipeline({split: Input(dict), Output(): split})

        {"user": "ann", "text": "to be"}   → train
        {"user": "bob", "text": "or not"}  → valid
        {"user": "ann", "text": "to see"}  → train

    The choice is a function of (seed, name, key). It is the same on every runner, and keys stay where they are when
    data is added. A record keeps its key, unless the key is the result of an analyzer of duplicates and its cluster
    gets or loses members: n members that get m more are named anew, and drawn anew, with a probability of m / (n + m),
    all of them together. Clusters whose members stay the same stay where they are.

    Where fractions change, only the keys move for which there is no room any more: the outputs divide the numbers from
    0 to 1 among them in their order, and a key has its number. Datasets that are split with the same name, seed and
    fractions agree on every key.

    Fractions are of keys, not of records: where a few users have most of the records, splits may be far from them.

    Args:
        fractions: output → fraction; they add up to 1.
        key: the name of a field; `SOURCE_FILE`; the result of an analyzer of `beam_pipes.transforms.dedup`, whose
            clusters then stay together; or a function of the record that gives a str, bytes or an int.
        type_: the class of records. Default: dict, an example.
        seed: another seed, another choice.
        name: the stage's name; two splits of one graph choose independently because they have different names.

    Raises `DeclarationError` where fractions do not add up, or a record has no key.
    """

    def __init__(
        self,
        fractions: Mapping[str, float],
        *,
        key: KeyOf,
        type_: type = dict,
        seed: int = 0,
        name: str = "SplitByKey",
    ) -> None:
        if not isinstance(fractions, Mapping):
            raise DeclarationError(
                f"{name}: fractions are output → fraction, got {brief(fractions)}. Example: "
                "{'train': 0.98, 'valid': 0.02}.",
                stage=name,
            )
        names, parts = list(fractions), list(fractions.values())
        super().__init__(type_, names, parts, seed=seed, key=GroupKey(key, stage=name), name=name)
