"""Google Cloud Storage as a place for caches and inputs, through google-cloud-storage.

| file | holds |
| --- | --- |
| `requests.py` | `GcsOptions`: deadlines, sizes, credentials; the client, bounded retries, errors in words |
| `transfer.py` | resumable uploads, an object as a file, names below a prefix |
| `lease.py` | the build lock: a lease that is renewed |
| `objects.py` | `ObjectStorage`: what this service and S3 share |
| `storage.py` | `GcsStorage`, all of it behind the `Storage` protocol |
"""

from __future__ import annotations

from beam_pipes.cache.gcs.requests import GcsOptions as GcsOptions
from beam_pipes.cache.gcs.storage import GcsStorage as GcsStorage
