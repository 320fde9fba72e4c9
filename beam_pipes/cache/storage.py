"""An older name of `beam_pipes.storage.local`."""

from __future__ import annotations

from beam_pipes.storage.local import LocalStorage as LocalStorage
from beam_pipes.storage.local import is_remote as is_remote
from beam_pipes.storage.local import storage_for as storage_for
