"""Published caches in the formats of others: Parquet, Croissant, TensorFlow Metadata, TFX, Megatron's, ArrayRecord,
WebDataset, MDS.

`FORMATS` is the only list of format names. No export changes the cache; records that are taken down are left out.
"""

from __future__ import annotations

from beam_pipes.export.export import FORMATS as FORMATS
from beam_pipes.export.export import export as export
