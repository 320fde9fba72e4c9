"""Where bytes lie: local directories, object stores, the web; locks and leases; JSON that is checked when it is read.

| file | holds |
| --- | --- |
| `protocol.py` | `Storage`, what every place offers; writing all bytes or an error |
| `local.py` | `LocalStorage`, and `storage_for`: path → storage |
| `objects.py`, `requests.py`, `transfer.py` | what all object stores share: names, retries, uploads |
| `gcs.py`, `s3.py`, `azure.py`, `web.py` | one service each |
| `locks.py` | locks of local files, leases of objects |
| `checked_json.py` | JSON documents, every problem with the field that has it |
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from beam_pipes.extras import loaded_on_first_use

if TYPE_CHECKING:
    from beam_pipes.storage.gcs import GcsStorage as GcsStorage
    from beam_pipes.storage.local import LocalStorage as LocalStorage
    from beam_pipes.storage.local import storage_for as storage_for
    from beam_pipes.storage.protocol import Storage as Storage
    from beam_pipes.storage.requests import GcsOptions as GcsOptions

__getattr__, __dir__ = loaded_on_first_use(
    __name__,
    {
        "gcs": "GcsStorage",
        "local": "LocalStorage storage_for",
        "protocol": "Storage",
        "requests": "GcsOptions",
    },
)
__all__ = __dir__()
