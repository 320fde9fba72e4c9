"""Deduplication: analyzers that find records with repeated content, and the stage that drops them.

| word | meaning |
| --- | --- |
| content | the part of a record that is compared: the output of `of`, normalized |
| exact duplicate | a record whose content equals that of an earlier record |
| near duplicate | a record whose text is nearly that of an earlier record: MinHash, see `NearDuplicates` |
| cluster | records that are similar, directly or through others; its first record stays |
| kept, removed | the first record of a cluster in the order of the source, and all others |

Only digests and signatures travel, never content; the result does not depend on shards, workers or runners.
"""

from __future__ import annotations

from beam_pipes.transforms.dedup.contamination import DropContaminated as DropContaminated
from beam_pipes.transforms.dedup.contamination import Overlap as Overlap
from beam_pipes.transforms.dedup.contamination import letters_and_digits as letters_and_digits
from beam_pipes.transforms.dedup.duplicates import DropDuplicates as DropDuplicates
from beam_pipes.transforms.dedup.duplicates import Duplicate as Duplicate
from beam_pipes.transforms.dedup.duplicates import Duplicates as Duplicates
from beam_pipes.transforms.dedup.duplicates import cache_duplicates as cache_duplicates
from beam_pipes.transforms.dedup.exact import ExactDuplicates as ExactDuplicates
from beam_pipes.transforms.dedup.exact import compose as compose
from beam_pipes.transforms.dedup.exact import content_digest as content_digest
from beam_pipes.transforms.dedup.exact import lower as lower
from beam_pipes.transforms.dedup.exact import plain_text as plain_text
from beam_pipes.transforms.dedup.exact import squeeze_whitespace as squeeze_whitespace
from beam_pipes.transforms.dedup.likeness import Shingles as Shingles
from beam_pipes.transforms.dedup.likeness import compared_probability as compared_probability
from beam_pipes.transforms.dedup.likeness import found_probability as found_probability
from beam_pipes.transforms.dedup.near import NearDuplicates as NearDuplicates
