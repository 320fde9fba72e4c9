"""Deduplication: analyzers that find records whose content is there already, and the stage that drops them.

| word | meaning |
| --- | --- |
| content | what of a record is compared: what `of` gives, normalized |
| exact duplicate | a record whose content equals that of a record before it |
| near duplicate | a record whose text is nearly that of a record before it: MinHash, see `NearDuplicates` |
| cluster | records that are alike, directly or by way of others; its first record stays |
| kept, removed | the first record of a cluster in the order of the source, and all others |

Only digests and signatures travel, never content; what stays does not depend on shards, workers or runners.
"""

from __future__ import annotations

from beam_pipes.transforms.dedup.bands import compared_probability as compared_probability
from beam_pipes.transforms.dedup.bands import found_probability as found_probability
from beam_pipes.transforms.dedup.cache_duplicates import cache_duplicates as cache_duplicates
from beam_pipes.transforms.dedup.content_digest import content_digest as content_digest
from beam_pipes.transforms.dedup.drop_duplicates import DropDuplicates as DropDuplicates
from beam_pipes.transforms.dedup.duplicates import Duplicate as Duplicate
from beam_pipes.transforms.dedup.duplicates import Duplicates as Duplicates
from beam_pipes.transforms.dedup.exact_duplicates import ExactDuplicates as ExactDuplicates
from beam_pipes.transforms.dedup.near_duplicates import NearDuplicates as NearDuplicates
from beam_pipes.transforms.dedup.normalizers import compose as compose
from beam_pipes.transforms.dedup.normalizers import lower as lower
from beam_pipes.transforms.dedup.normalizers import plain_text as plain_text
from beam_pipes.transforms.dedup.normalizers import squeeze_whitespace as squeeze_whitespace
from beam_pipes.transforms.dedup.shingles import Shingles as Shingles
