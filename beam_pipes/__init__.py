"""beam-pipes: declare once, cache with Apache Beam, train from ordinary TFRecords at memory speed.

The names that people type are available here and loaded on first use: importing this package does not import
Beam, TensorFlow, JAX or torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from beam_pipes.building import Asset as Asset
    from beam_pipes.building import Declaration as Declaration
    from beam_pipes.cache import Cache as Cache
    from beam_pipes.cache import FeatureSpec as FeatureSpec
    from beam_pipes.cache import write_cache as write_cache
    from beam_pipes.columns import add_column as add_column
    from beam_pipes.columns import with_columns as with_columns
    from beam_pipes.face import build as build
    from beam_pipes.face import declare as declare
    from beam_pipes.loader import Loader as Loader
    from beam_pipes.on_device import DataLoader as DataLoader
    from beam_pipes.typed import DAGPipeline as DAGPipeline
    from beam_pipes.typed import Input as Input
    from beam_pipes.typed import Output as Output
    from beam_pipes.typed import Pipeline as Pipeline
    from beam_pipes.typed import Service as Service
    from beam_pipes.typed import count as count
    from beam_pipes.typed import drop as drop
    from beam_pipes.typed import load_once as load_once
    from beam_pipes.typed import observe as observe
    from beam_pipes.typed import stage as stage

__version__ = "0.1.0"

_ROOM_OF_NAME = {
    "Asset": "building",
    "Cache": "cache",
    "DAGPipeline": "typed",
    "DataLoader": "on_device",
    "Declaration": "building",
    "FeatureSpec": "cache",
    "Input": "typed",
    "Loader": "loader",
    "Output": "typed",
    "Pipeline": "typed",
    "Service": "typed",
    "add_column": "columns",
    "build": "face",
    "count": "typed",
    "declare": "face",
    "drop": "typed",
    "load_once": "typed",
    "observe": "typed",
    "stage": "typed",
    "with_columns": "columns",
    "write_cache": "cache",
}

__all__ = ["__version__", *sorted(_ROOM_OF_NAME)]


if not TYPE_CHECKING:  # a type checker would take every name for one that is here

    def __getattr__(name: str) -> object:
        room = _ROOM_OF_NAME.get(name)
        if room is None:
            raise AttributeError(f"module 'beam_pipes' has no attribute {name!r}; it offers {', '.join(__all__)}")
        return getattr(importlib.import_module(f"beam_pipes.{room}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
