"""`PipelineOptions`: how a pipeline is run, checked."""

from __future__ import annotations

import dataclasses
import secrets
from collections.abc import Mapping
from typing import Any

from beam_pipes.errors import OperatorArgumentError
from beam_pipes.graph.argument import nearest
from beam_pipes.graph.feeding import LAST
from beam_pipes.graph.trace import POLICIES
from beam_pipes.graph.types import CPU_ONLY_DEVICE_ID

#: Options of DALI's that say how its executor manages threads, streams and memory. They are accepted, so that graphs
#: move over unchanged, and decide nothing here.
WITHOUT_EFFECT = (
    "bytes_per_sample",
    "set_affinity",
    "max_streams",
    "default_cuda_stream_priority",
    "enable_memory_stats",
    "enable_checkpointing",
    "exec_async",
    "exec_pipelined",
    "exec_dynamic",
    "py_num_workers",
    "py_start_method",
    "py_callback_pickler",
    "output_dtype",
    "output_ndim",
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class PipelineOptions:
    """How a pipeline is run.

    Args:
        batch_size: samples of a batch; `max_batch_size` is the same.
        num_threads: threads for operators that release the interpreter lock, and for batches that are made ahead.
        device_id: which accelerator the device iterators use; None leaves it to them.
        seed: what shuffling and draws are keyed by; -1 takes one from the system (it is in the checkpoint then).
        prefetch_queue_depth: batches that iterators make ahead; 0 makes each when it is asked for.
        last: the end of an epoch that does not fill a batch: "partial" gives a smaller batch, "pad" repeats the last
            record and marks it (`outputs.valid`), "drop" leaves it out. With the first two an epoch is exactly the set
            of records, whatever the batch size.
        on_error: what happens to a sample on which an operator fails: "fail", "drop" (counted), "dead_letter" (kept in
            `pipe.dead_letters`). The batch is smaller by those.
        cache: the directory of the cache that stands for everything before the cut; None runs it with the rest.

    Raises `OperatorArgumentError` for an option that is unknown (naming the nearest) or out of range.
    """

    batch_size: int | None = None
    num_threads: int = 1
    device_id: int | None = None
    seed: int = 0
    prefetch_queue_depth: int = 2
    last: str = "partial"
    on_error: str = "fail"
    cache: str | None = None

    def __post_init__(self) -> None:
        if self.seed == -1:
            object.__setattr__(self, "seed", secrets.randbits(63))
        least = {"batch_size": 1, "num_threads": 1, "device_id": 0, "seed": 0, "prefetch_queue_depth": 0}
        for name, bound in least.items():
            value = getattr(self, name)
            if value is None and name in ("batch_size", "device_id"):
                continue
            if isinstance(value, bool) or not isinstance(value, int) or value < bound:
                raise OperatorArgumentError(f"{name} should be an integer of at least {bound}, got {value!r}.")
        for name, choices in (("last", LAST), ("on_error", POLICIES)):
            value = getattr(self, name)
            if value not in choices:
                raise OperatorArgumentError(
                    f"{name} should be one of {', '.join(choices)}, got {value!r}.{nearest(str(value), choices)}"
                )

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> PipelineOptions:
        """Options by their names, DALI's among them."""
        given = dict(given)
        if "max_batch_size" in given:
            given.setdefault("batch_size", given.pop("max_batch_size"))
        for name in ("batch_size", "num_threads", "device_id"):
            if given.get(name) in (-1, CPU_ONLY_DEVICE_ID):  # not said, as DALI says it
                del given[name]
        depth = given.get("prefetch_queue_depth")
        if isinstance(depth, Mapping):  # DALI's separate queues
            given["prefetch_queue_depth"] = max(depth.values(), default=0)
        known = option_names()
        for name in given:
            if name not in known:
                raise OperatorArgumentError(
                    f"a pipeline has no option {name!r}.{nearest(name, known)} It takes: "
                    f"{', '.join(field.name for field in dataclasses.fields(cls))}.",
                    argument=name,
                )
        own = {field.name for field in dataclasses.fields(cls)}
        return cls(**{name: value for name, value in given.items() if name in own and value is not None})


def option_names() -> tuple[str, ...]:
    """All names that `PipelineOptions.of` takes."""
    return (*(field.name for field in dataclasses.fields(PipelineOptions)), "max_batch_size", *WITHOUT_EFFECT)
