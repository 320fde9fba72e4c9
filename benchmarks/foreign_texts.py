"""Conversations, chat templates and tokenizers against the libraries whose they are, drawn by the seed.

    python -m benchmarks.foreign_texts --json foreign_texts.json

Each of the templates in `benchmarks/campaigns/chat_templates` writes conversations for each of three tokenizers, as
`transformers` does; tokenizers of every kind are drawn feature by feature and encode drawn texts, as `tokenizers`,
`transformers`, `sentencepiece` and `tiktoken` do. Takes three minutes.

Exits with 1 where a text, an id or a mask differs, or where one side alone refuses without a reason in `ON_PURPOSE`.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

from benchmarks import harness
from benchmarks.campaigns import foreign_chats, foreign_tokenizers

CONVERSATIONS, TOKENIZERS = 400, 1500


def main() -> None:
    parser = harness.parser(__doc__)
    parser.add_argument("--seed", type=int, default=0, help="the first seed that is drawn from [0]")
    arguments = parser.parse_args()
    started = time.process_time()
    with tempfile.TemporaryDirectory(prefix="beam-pipes-") as directory:
        results = run(Path(directory), conversations=CONVERSATIONS, tokenizers=TOKENIZERS, seed=arguments.seed)
    harness.report({**results, "cpu_secs": round(time.process_time() - started, 1)}, arguments.json)
    if results["problems"]:
        sys.exit(1)


def run(directory: Path, *, conversations: int, tokenizers: int, seed: int = 0) -> dict[str, Any]:
    """Counts of outcomes: `conversations` of each template with each tokenizer, `tokenizers` of each kind."""
    counts: dict[str, Counter[str]] = {}
    reasons: dict[str, Counter[str]] = {}
    problems: list[str] = []
    chats = (
        (f"conversations, {name.partition(', ')[2]}", f"{name}, seed {each}", outcome)
        for name, each, outcome in foreign_chats.outcomes(directory / "chats", number=conversations, seed=seed)
    )
    (directory / "tokenizers").mkdir()
    others = (
        (kind, f"{kind}, seed {each}", outcome)
        for kind, each, outcome in foreign_tokenizers.outcomes(directory / "tokenizers", number=tokenizers, seed=seed)
    )
    for drawn in (chats, others):
        for kind, name, (what, words) in drawn:
            counts.setdefault(kind, Counter())[what] += 1
            if what == "on purpose":
                reasons.setdefault(kind, Counter())[words] += 1
            if what == "wrong":
                problems.append(f"{name}: {words}")
    return {
        "templates": len(foreign_chats.NAMES),
        "tried": sum(sum(each.values()) for each in counts.values()),
        "by_kind": {kind: dict(found) for kind, found in counts.items()},
        "on_purpose": {kind: dict(found) for kind, found in reasons.items()},
        "problems": problems,
    }


if __name__ == "__main__":
    main()
