"""Files that nobody here wrote, read by beam-pipes and by the reference reader of their kind, value by value.

    python -m benchmarks.foreign_files --json foreign_files.json

The files are those that the pinned wheels and CPython's own tests bring (`benchmarks.campaigns.foreign_corpora`).

Exits with 1 where a value differs, a file is refused that others read, or an error is not in our words; where we differ
on purpose, the table `ON_PURPOSE` says why.
"""

from __future__ import annotations

import sys
import time
from collections import Counter
from typing import Any

from benchmarks import harness
from benchmarks.campaigns.foreign_corpora import CORPORA, ON_PURPOSE, files_of
from benchmarks.campaigns.foreign_readers import compared


def main() -> None:
    arguments = harness.parser(__doc__).parse_args()
    started = time.process_time()
    results = run()
    harness.report({**results, "cpu_secs": round(time.process_time() - started, 1)}, arguments.json)
    if results["problems"]:
        sys.exit(1)


def run() -> dict[str, Any]:
    """Counts of outcomes by kind of file, and what is wrong."""
    missing = [
        f"{each.package}, {each.patterns}: {len(each.paths())} files, expected at least {each.least}"
        for each in CORPORA
        if each.is_there and len(each.paths()) < each.least
    ]
    outcomes = [compared(file) for file in files_of(CORPORA)]
    counts: dict[str, Counter[str]] = {}
    for outcome in outcomes:
        counts.setdefault(outcome.file.kind, Counter())[outcome.what] += 1
    return {
        "tried": len(outcomes),
        **{what: sum(each[what] for each in counts.values()) for what in ("equal", "refused", "on purpose", "wrong")},
        "by_kind": {kind: dict(found) for kind, found in sorted(counts.items())},
        "on_purpose": {each.names: each.reason for each in ON_PURPOSE},
        "problems": missing + [f"{each.file.name}: {each.words}" for each in outcomes if each.what == "wrong"],
    }


if __name__ == "__main__":
    main()
