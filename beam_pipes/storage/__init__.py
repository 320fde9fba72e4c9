"""Places for bytes: local directories, object stores, the web; locks and leases; JSON that is checked on reading.

| file | holds |
| --- | --- |
| `protocol.py` | `Storage`, what every place offers; writing all bytes or an error |
| `local.py` | `LocalStorage`, and `storage_for`: path → storage |
| `objects.py` | `ObjectStorage`, what all object stores share, over single attempts at a service; their lock |
| `requests.py` | their options, bounded retries, what answers and exceptions of clients mean |
| `transfer.py` | listings, an object as a file, a file that becomes an object |
| `gcs.py`, `s3.py`, `azure.py`, `web.py` | one service each |
| `locks.py` | locks of local files |
| `checked_json.py` | JSON documents, every problem with the field that has it |
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from beam_pipes.extras import loaded_on_first_use

if TYPE_CHECKING:
    from beam_pipes.storage.gcs import GcsOptions as GcsOptions
    from beam_pipes.storage.gcs import GcsStorage as GcsStorage
    from beam_pipes.storage.local import LocalStorage as LocalStorage
    from beam_pipes.storage.local import storage_for as storage_for
    from beam_pipes.storage.protocol import Storage as Storage

__getattr__, __dir__ = loaded_on_first_use(
    __name__,
    {
        "gcs": "GcsOptions GcsStorage",
        "local": "LocalStorage storage_for",
        "protocol": "Storage",
    },
)
__all__ = __dir__()
