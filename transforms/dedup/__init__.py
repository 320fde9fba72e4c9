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

from transforms.dedup.bands import compared_probability as compared_probability
from transforms.dedup.bands import found_probability as found_probability
from transforms.dedup.cache_duplicates import cache_duplicates as cache_duplicates
from transforms.dedup.content_digest import content_digest as content_digest
from transforms.dedup.drop_duplicates import DropDuplicates as DropDuplicates
from transforms.dedup.duplicates import Duplicate as Duplicate
from transforms.dedup.duplicates import Duplicates as Duplicates
from transforms.dedup.exact_duplicates import ExactDuplicates as ExactDuplicates
from transforms.dedup.near_duplicates import NearDuplicates as NearDuplicates
from transforms.dedup.normalizers import compose as compose
from transforms.dedup.normalizers import lower as lower
from transforms.dedup.normalizers import plain_text as plain_text
from transforms.dedup.normalizers import squeeze_whitespace as squeeze_whitespace
from transforms.dedup.shingles import Shingles as Shingles
