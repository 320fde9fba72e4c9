"""JSON-able data as one text, and as a digest: equal data gives equal text in every process."""

from __future__ import annotations

import hashlib
import json
from typing import Any


def canonical_text(value: Any) -> str:
    """`{"b": 1, "a": [2]}  →  '{"a":[2],"b":1}'`"""
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


def digest_of(value: Any) -> str:
    """Sha256 (hex) of the canonical text."""
    return hashlib.sha256(canonical_text(value).encode()).hexdigest()
