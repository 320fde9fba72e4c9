"""The scripts of SeqIO that programs start or call: `cache_tasks_main`, which is imported on first use."""

from __future__ import annotations

import importlib
from types import ModuleType

from beam_pipes.extras import absent_here, lacking
from beam_pipes.seqio import ABSENT


def __getattr__(name: str) -> ModuleType:
    if name != "cache_tasks_main":
        raise lacking(__name__, name, absent_here(name, ABSENT, "SeqIO"))
    return importlib.import_module(f"{__name__}.{name}")
