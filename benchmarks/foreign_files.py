"""Files that nobody here wrote, read by beam-pipes and by the reference reader of their kind, value by value.

    python -m benchmarks.foreign_files --json foreign_files.json

The files are those that the pinned wheels and CPython's own tests bring (`benchmarks.campaigns.foreign_corpora`), and
those that programs of Debian write for it (`benchmarks.campaigns.foreign_writers`), which takes minutes; the report
names programs that are not installed.

Exits with 1 where a value differs, a file is refused that others read, or an error is not in our words; where we differ
on purpose, the table `ON_PURPOSE` says why.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks import harness
from benchmarks.campaigns.foreign_corpora import CORPORA, ON_PURPOSE, ForeignFile, files_of
from benchmarks.campaigns.foreign_readers import compared
from benchmarks.campaigns.foreign_writers import written


def main() -> None:
    arguments = harness.parser(__doc__).parse_args()
    with tempfile.TemporaryDirectory(prefix="beam-pipes-") as directory:
        files, writers = written(Path(directory))
        started = time.process_time()
        results = {"writers": writers, **run(files)}
    harness.report({**results, "cpu_secs": round(time.process_time() - started, 1)}, arguments.json)
    if results["problems"]:
        sys.exit(1)


def run(files: Sequence[ForeignFile] = ()) -> dict[str, Any]:
    """Counts of outcomes by kind of file, and what is wrong: of the files of packages, and of `files`."""
    missing = [
        f"{each.package}, {each.patterns}: {len(each.paths())} files, expected at least {each.least}"
        for each in CORPORA
        if each.is_there and len(each.paths()) < each.least
    ]
    outcomes = [compared(file) for file in [*files_of(CORPORA), *files]]
    counts: dict[str, Counter[str]] = {}
    for outcome in outcomes:
        made = " written" if outcome.file in files else ""
        counts.setdefault(f"{outcome.file.kind}{made}", Counter())[outcome.what] += 1
    return {
        "tried": len(outcomes),
        **{what: sum(each[what] for each in counts.values()) for what in ("equal", "refused", "on purpose", "wrong")},
        "by_kind": {kind: dict(found) for kind, found in sorted(counts.items())},
        "on_purpose": {each.names: each.reason for each in ON_PURPOSE},
        "problems": missing + [f"{each.file.name}: {each.words}" for each in outcomes if each.what == "wrong"],
    }


if __name__ == "__main__":
    main()
