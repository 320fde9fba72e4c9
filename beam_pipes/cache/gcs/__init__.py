"""Google Cloud Storage as a place for caches and inputs, through google-cloud-storage.

| file | holds |
| --- | --- |
| `requests.py` | `GcsOptions`: deadlines, sizes, credentials; the client, bounded retries, errors in words |
| `transfer.py` | names below a prefix, an object as a file, staged files, resumable uploads |
| `objects.py` | `ObjectStorage`: what this service, S3 and Azure share, the build lock among it |
| `storage.py` | `GcsStorage`, all of it behind the `Storage` protocol |
"""

from __future__ import annotations

from beam_pipes.cache.gcs.requests import GcsOptions as GcsOptions
from beam_pipes.cache.gcs.storage import GcsStorage as GcsStorage
