"""The cut between what is cached and what runs at load time."""

from __future__ import annotations

from typing import Any

from beam_pipes.errors import TaskError


class CacheDatasetPlaceholder:
    """A step that marks the cut: steps before it are done once, offline; steps after it every time the data is read.

    Args:
        required: `get_dataset` refuses `use_cached=False`.
        file_shuffle_buffer_size: size of the buffer that shuffles the files of the cache; None shuffles all of them.
    """

    def __init__(self, required: bool = False, file_shuffle_buffer_size: int | None = None) -> None:
        self._required = required
        self._file_shuffle_buffer_size = file_shuffle_buffer_size

    @property
    def required(self) -> bool:
        return self._required

    @property
    def file_shuffle_buffer_size(self) -> int | None:
        return self._file_shuffle_buffer_size

    def __call__(self, dataset: Any) -> Any:
        raise TaskError("`CacheDatasetPlaceholder` should never be called: it marks a place, it is no preprocessor")

    def __repr__(self) -> str:
        return f"CacheDatasetPlaceholder(required={self._required})"
