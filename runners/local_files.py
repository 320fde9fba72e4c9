"""What of a build lies on this machine alone, where workers elsewhere do not see it."""

from __future__ import annotations

from beam_pipes.runners.options import Planned
from beam_pipes.sources.file_source import FileSource


def local_cache(plan: Planned) -> str | None:
    """The directory of the cache where it is no `gs://…`, else None."""
    return None if plan.path.startswith("gs://") else plan.path


def local_input(plan: Planned) -> str | None:
    """The first file or directory of the input that is no `gs://…`, else None."""
    source = plan.declaration.source
    entries = source.selection().entries if isinstance(source, FileSource) else ()
    return next((entry for entry in entries if not entry.startswith("gs://")), None)
