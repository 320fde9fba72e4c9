"""What a build left on disk, for comparing builds byte by byte."""

from __future__ import annotations

from pathlib import Path


def built_files(cache: Path) -> dict[str, bytes]:
    """Relative path → bytes of everything published, except what holds times: the record of the run, and leases."""
    return {
        str(path.relative_to(cache)): path.read_bytes()
        for path in sorted(cache.rglob("*"))
        if path.is_file()
        and path.name not in ("build.json", "report.html", ".digests")
        and path.parent.name != "leases"
    }
