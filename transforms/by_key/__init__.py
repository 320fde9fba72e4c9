"""Sampling and splitting by key: what belongs together, such as the records of a user, has one fate.

| word | meaning |
| --- | --- |
| key | what names the group of a record: a field, its file, its cluster of duplicates, or what a function gives |
| draw | a number from 0 to 1 that follows from (seed, stage's name, key), and from nothing else |
"""

from __future__ import annotations

from beam_pipes.transforms.by_key.group_key import SOURCE_FILE as SOURCE_FILE
from beam_pipes.transforms.by_key.group_key import GroupKey as GroupKey
from beam_pipes.transforms.by_key.sample_by_key import SampleByKey as SampleByKey
from beam_pipes.transforms.by_key.split_by_key import SplitByKey as SplitByKey
