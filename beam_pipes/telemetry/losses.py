"""The losses of rows by step: written while a model trains, read when somebody asks which row made a spike.

    with LossRecorder("run/losses", loader) as losses:           run/losses/losses-00000-of-00001.tfrecord
        for step, batch in enumerate(loader):                      session: state, caches, batch size, …
            per_row = train(batch)                                 step 0: (place, segment, loss) of each row
            losses.record(per_row, step=step)                      step 1: …

A file grows by one TFRecord a step. What a killed process leaves is read up to its last whole record, and the next
process goes on behind that. A step that is trained again, after a restart from a checkpoint, has its last losses.
"""

from __future__ import annotations

import dataclasses
import glob
import json
import os
import struct
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any

import numpy as np
import numpy.typing as npt

from beam_pipes.errors import CorruptRecordError, LoaderError
from beam_pipes.format.framing import RecordWriter, read_records, scan_records
from beam_pipes.loader import Loader
from beam_pipes.loader.delivery import splits_of
from beam_pipes.loader.from_state import windows_of_loader
from beam_pipes.on_device.data_loader import DataLoader
from beam_pipes.storage.checked_json import strict_json
from beam_pipes.storage.local import is_remote, writing_to
from beam_pipes.telemetry.telemetry import native_of

Array = npt.NDArray[Any]

_ENTRY = np.dtype([("place", "<u4"), ("segment", "<u2"), ("loss", "<f4")])
_STEP = struct.Struct("<Q")
_SESSION_MARK, _STEP_MARK = b"S", b"L"
_FORMAT = 1


class LossRecorder:
    """Appends the losses of this process's rows to a file in `directory`, one record a step.

        losses = LossRecorder("run/losses", loader)
        losses.record(per_row, step=step)                                       float (rows,)
        losses.record(per_token, step=step, segment_ids=batch["segment_ids"])   float (rows, length): mean of each piece

    Args:
      directory: local, the same for all processes of the run; each writes a file of its own. Created if needed.
      loader: what the rows come from: a `Loader`, or what reads from one (`TorchDataLoader`, `JaxDataLoader`,
        `DataLoader.from_cache(loader)`). Its state and caches are noted, so that `beam-pipes blame` needs no options.

    10 bytes per row, or piece of a packed row, and 33 per step; nothing else is kept in memory. Arrays of JAX, and of
    torch on a GPU, are copied while the next step runs and written then, so that the loop does not wait for them: a
    killed process may lose its last step. All others are written at once. Use it in a `with` block, or call `close`.

    Raises `LoaderError` for an object store, where files cannot grow, and for a loader without positions.
    """

    def __init__(self, directory: str | os.PathLike[str], loader: object) -> None:
        path = os.path.expanduser(os.fspath(directory))
        if is_remote(path):
            raise LoaderError(
                f"recorded losses grow while a model trains, and files at {path!r} do not. Record to a local "
                "directory, and copy it when the run ends.",
                path=path,
            )
        native = loader_of_rows(loader)
        self._loader = native
        self.path = os.path.join(path, f"losses-{native.host_index:05d}-of-{native.host_count:05d}.tfrecord")
        with writing_to(self.path):
            os.makedirs(path, exist_ok=True)
            self._file = open(self.path, "ab", buffering=0)
            self._file.truncate(_whole_bytes(self.path))
        self._records = RecordWriter(self._file)
        self._waiting: tuple[int, Callable[[], Array], Callable[[], Array] | None] | None = None
        self._append(_SESSION_MARK + strict_json(dataclasses.asdict(_session_of(native))).encode())

    def record(self, losses: object, *, step: int, segment_ids: object = None) -> None:
        """Notes the losses of the rows of this process in global batch number `step`, in their order.

        `losses` is (rows,), an array of NumPy, JAX or torch; or (rows, length) with `segment_ids` of this shape, where
        each piece of a row gets the mean over its tokens. Raises `LoaderError` for other shapes.
        """
        fetch, is_there = _started(losses)
        segments, are_there = (None, True) if segment_ids is None else _started(segment_ids)
        self._write_waiting()
        self._waiting = (step, fetch, segments)
        if is_there and are_there:
            self._write_waiting()

    def close(self) -> None:
        """Writes what is left and closes the file. A second call does nothing."""
        if not self._file.closed:
            try:
                self._write_waiting()
            finally:
                with writing_to(self.path):
                    self._records.close()
                    self._file.close()

    def __enter__(self) -> LossRecorder:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _write_waiting(self) -> None:
        waiting, self._waiting = self._waiting, None
        if waiting is not None:
            step, fetch, segments = waiting
            entries = self._entries(step, fetch(), None if segments is None else segments())
            self._append(_STEP_MARK + _STEP.pack(step) + entries.tobytes())

    def _append(self, payload: bytes) -> None:
        with writing_to(self.path):
            whole = os.fstat(self._file.fileno()).st_size
            try:
                self._records.write(payload)
                self._records.flush()
            except OSError:
                self._file.truncate(whole)  # what comes next may not follow half a record
                raise

    def _entries(self, step: int, losses: Array, segment_ids: Array | None) -> Array:
        places = places_of(self._loader, step)
        wanted = (len(places),) if segment_ids is None else (len(places), *segment_ids.shape[1:])
        if losses.shape != wanted or segment_ids is not None and segment_ids.shape != losses.shape:
            per = "a loss for each row" if segment_ids is None else "a loss and a segment id for each token"
            raise LoaderError(
                f"expected {per} that this process has in step {step}, {wanted}, got losses of shape {losses.shape}"
                + ("" if segment_ids is None else f" and segment ids of shape {segment_ids.shape}")
                + ". Compute the loss without a reduction over rows."
            )
        if segment_ids is None:
            made = np.zeros(len(places), _ENTRY)
            made["place"], made["loss"] = places, losses
            return made
        most = int(segment_ids.max(initial=0)) + 1
        pieces = (segment_ids + np.arange(len(places), dtype=np.int64)[:, None] * most).reshape(-1)
        tokens = np.bincount(pieces, minlength=len(places) * most).reshape(-1, most)
        sums = np.bincount(pieces, losses.reshape(-1), minlength=len(places) * most).reshape(-1, most)
        tokens[:, 0] = 0  # padding
        rows, segments = np.nonzero(tokens)
        made = np.zeros(len(rows), _ENTRY)
        made["place"], made["segment"] = places[rows], segments
        made["loss"] = sums[rows, segments] / tokens[rows, segments]
        return made


def loader_of_rows(loader: object) -> Loader:
    """The native loader that knows the rows of a training loop's loader."""
    if isinstance(loader, DataLoader):
        native = loader.converted_loader() if loader.passes_within is None else loader.passes_within.endless()
    else:
        native = native_of(loader)
    if native is None:
        raise LoaderError(
            "losses are recorded by row, and only a Loader, or what reads from one, knows which row is where: got "
            f"{type(loader).__name__}. Pass the Loader of the training loop, without transformations."
        )
    return native


def places_of(loader: Loader, step: int) -> Array:
    """(rows of this process,): the place of each in the global batch of a step."""
    at = loader._run.at(step)
    return loader._run.steps.host_places(at.rows, at.full_rows)


def _started(array: Any) -> tuple[Callable[[], Array], bool]:
    """What gives the array as NumPy's, its copy from the device begun; and whether that does not wait."""
    if hasattr(array, "copy_to_host_async"):  # JAX
        array.copy_to_host_async()
        return lambda: _numbers(np.asarray(array)), False
    if hasattr(array, "detach"):  # torch
        array = array.detach()
        if array.is_cuda:
            torch = sys.modules["torch"]
            host = torch.empty(array.shape, dtype=array.dtype, pin_memory=True)
            host.copy_(array, non_blocking=True)
            copied = torch.cuda.Event()
            copied.record(torch.cuda.current_stream(array.device))

            def fetched() -> Array:
                copied.synchronize()
                return _numbers(host.float().numpy())

            return fetched, False
        array = array.float().cpu().numpy()
    made = _numbers(np.asarray(array))
    return lambda: made, True


def _numbers(array: Array) -> Array:
    return array if array.dtype.kind in "iuf" else array.astype(np.float32)  # bfloat16 is of kind V


@dataclasses.dataclass(frozen=True, kw_only=True)
class RecordedRun:
    """What a recorder notes of the run: enough to make its loader again, but for packing plans and conditions.

    `batch_size` is None where batches are cut by tokens. `started_secs` counts from 1970. `windows` are the arguments
    of `Windows` of each source, "" for one of records; none where no source has windows.
    """

    format: int
    started_secs: float
    caches: Sequence[str]
    state: Mapping[str, object]
    batch_size: int | None
    last: str
    host_count: int
    windows: Sequence[str] = ()


def _session_of(loader: Loader) -> RecordedRun:
    return RecordedRun(
        format=_FORMAT,
        started_secs=time.time(),
        caches=[os.path.abspath(p) if not is_remote(p) else p for p in _paths(loader)],
        state=loader.state_dict(),
        batch_size=loader.batch_size if loader.is_even else None,
        last=loader.last,
        host_count=loader.host_count,
        windows=windows_of_loader(loader),
    )


def _paths(loader: Loader) -> list[str]:
    return [str(split.path) for split in splits_of(loader._reader.stream)]


class RecordedLosses:
    """The losses in a directory of recorders, of all processes and restarts: `(place, segment) → loss` for each step.

        losses = RecordedLosses("run/losses")
        losses.steps      →  [0, 1, 2, …]
        losses.at(1234)   →  {(0, 0): 2.31, (1, 0): 9.87, …}

    `place` is the number of a row in its global batch, whichever host had it; `segment` the piece of a packed row, from
    1, or 0 for whole rows. Everything is read into memory, 10 bytes per loss.

    Raises `LoaderError` if there are none, and `CorruptRecordError` for damage other than an end that was cut off.
    """

    def __init__(self, directory: str | os.PathLike[str]) -> None:
        path = os.path.expanduser(os.fspath(directory))
        sessions: list[tuple[RecordedRun, dict[int, bytes]]] = []
        for file in sorted(glob.glob(os.path.join(glob.escape(path), "losses-*.tfrecord"))):
            for payload in _whole_records(file):
                mark, rest = payload[:1], payload[1:]
                if mark == _SESSION_MARK:
                    sessions.append((_checked_run(file, rest), {}))
                else:
                    sessions[-1][1][_STEP.unpack_from(rest)[0]] = rest[_STEP.size :]
        if not sessions:
            raise LoaderError(
                f"there are no recorded losses in {path!r}. A training loop writes them: "
                "beam_pipes.telemetry.LossRecorder(directory, loader).",
                path=path,
            )
        sessions.sort(key=lambda each: each[0].started_secs)
        #: The most recent session of the run.
        self.run = sessions[-1][0]
        self._sessions = [steps for _, steps in sessions]
        #: The steps with losses, ascending.
        self.steps = sorted({step for steps in self._sessions for step in steps})

    def at(self, step: int) -> dict[tuple[int, int], float]:
        """The losses of a step; empty if none were recorded."""
        found: dict[tuple[int, int], float] = {}
        for steps in self._sessions:
            if step in steps:
                entries = np.frombuffer(steps[step], _ENTRY)
                pairs = zip(entries["place"].tolist(), entries["segment"].tolist(), strict=True)
                found.update(zip(pairs, entries["loss"].tolist(), strict=True))
        return found


def _checked_run(file: str, text: bytes) -> RecordedRun:
    facts = json.loads(text)
    if facts["format"] != _FORMAT:
        raise LoaderError(
            f"{file!r} holds losses in format {facts['format']}, and this version of beam_pipes reads {_FORMAT}. "
            "Read it with the version that wrote it.",
            path=file,
        )
    return RecordedRun(**facts)


def _whole_records(file: str) -> Iterator[bytes]:
    """The records up to the place where a killed process stopped writing."""
    try:
        yield from read_records(file)
    except CorruptRecordError as error:
        if error.problem != "truncated":
            raise


def _whole_bytes(file: str) -> int:
    try:
        for _ in scan_records(file):
            pass
    except CorruptRecordError as error:
        if error.problem != "truncated":
            raise
        return int(error.offset)
    return os.path.getsize(file)
