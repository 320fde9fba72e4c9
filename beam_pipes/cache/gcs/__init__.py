"""Google Cloud Storage as a place for caches and inputs, through google-cloud-storage.

| file | holds |
| --- | --- |
| `options.py` | `GcsOptions`: deadlines, sizes, credentials; from the environment |
| `session.py` | the client of this process, and its credentials |
| `retry.py` | every request: bounded attempts with jitter, errors in words |
| `upload.py` | resumable uploads |
| `reader.py` | an object as a file: ranges, read ahead |
| `listing.py` | names below a prefix, in parallel |
| `lease.py` | the build lock: a lease that is renewed |
| `storage.py` | `GcsStorage`, all of it behind the `Storage` protocol |
"""

from __future__ import annotations

from beam_pipes.cache.gcs.requests import GcsOptions as GcsOptions
from beam_pipes.cache.gcs.storage import GcsStorage as GcsStorage
