"""Declarations whose stages hang, take all memory or crash; in a module that worker processes can import."""

from __future__ import annotations

import ctypes
import dataclasses
import math
import os
import re
import signal
import sys
import threading
import time
from typing import Any

from beam_pipes.building import Declaration
from beam_pipes.cache import FeatureSpec
from beam_pipes.sources import TextLines
from beam_pipes.typed import Counter, DAGPipeline, Input, Output, Pipeline

INPUT_VARIABLE = "BEAM_PIPES_TEST_INPUT"
RECORD_SECS_VARIABLE = "BEAM_PIPES_TEST_RECORD_SECS"

MEBIBYTE = 1 << 20


def hang_in_a_loop() -> None:
    while True:
        try:
            sum(range(1000))
        except BaseException:  # not even an asynchronous exception ends it
            continue


def hang_in_a_regex() -> None:
    re.match(r"(a+)+$", "a" * 60 + "b")


def hang_in_c() -> None:
    """`pause` of the C library, with the interpreter's lock held: no thread of the process runs any more."""
    ctypes.PyDLL(None).sleep(3600)


def hang_on_a_lock() -> None:
    lock = threading.Lock()
    lock.acquire()
    lock.acquire()


def take_memory() -> None:
    taken = []
    while True:
        taken.append(bytearray(MEBIBYTE))
        time.sleep(0.0005)


def crash() -> None:
    ctypes.string_at(0)


class NoWords(Exception):
    """Like exceptions of some bindings: neither its text nor a copy of it can be made."""

    def __str__(self) -> str:
        raise RuntimeError("no text")

    def __reduce__(self) -> Any:
        raise TypeError("no pickle")


def fail_without_words() -> None:
    raise NoWords


FATES = {
    "loop": hang_in_a_loop,
    "sleep": lambda: time.sleep(3600),
    "regex": hang_in_a_regex,
    "c_call": hang_in_c,
    "lock": hang_on_a_lock,
    "memory": take_memory,
    "crash": crash,
    "exit": lambda: os._exit(3),
    "c_exit": lambda: ctypes.CDLL(None).exit(4),
    "sys_exit": lambda: sys.exit(5),
    "killed": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "no_words": fail_without_words,
}


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class Number(Pipeline):
    """`<word> <number>` → the number; words in `FATES` do as named."""

    input_type = str
    output_type = dict

    def transform(self, line: str) -> list[dict[str, Any]]:
        word, number = line.split()
        self._set_stats([Counter("lines", 1)])
        _, once, marker = word.partition("killed_once:")
        if once and not os.path.exists(marker):
            open(marker, "w").close()
            os.kill(os.getpid(), signal.SIGKILL)
        if word in FATES:
            FATES[word]()
        if word == "bad":
            raise ValueError(f"cannot take {number}")
        time.sleep(float(os.environ.get(RECORD_SECS_VARIABLE, "0")))
        return [{"number": int(number)}]


class Patient(Number):
    """Is slow, with its own limit."""

    record_timeout_secs = math.inf


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class Batched(Pipeline):
    """The same for whole batches."""

    input_type = dict
    output_type = dict

    def transform(self, example: dict[str, Any]) -> list[dict[str, Any]]:
        return self.transform_batch([example])[0]

    def transform_batch(self, examples: list[dict[str, Any]]) -> list[list[dict[str, Any]]]:
        for example in examples:
            if example["number"] == 13:
                time.sleep(3600)
        return [[example] for example in examples]


def limited(**options: Any) -> Declaration:
    """Lines → numbers, each line with half a second and 64 MiB."""
    number = options.pop("stage", None) or Number()
    dag = options.pop("dag", None) or {number: Input(str), Output("train"): number}
    options = {
        "on_error": "dead_letter",
        "record_timeout_secs": 0.5,
        "record_memory_bytes": 64 * MEBIBYTE,
        "target_shard_bytes": 1000,
        **options,
    }
    return Declaration(
        name="limited",
        source=TextLines(os.environ[INPUT_VARIABLE], pattern="*.txt"),
        pipeline=DAGPipeline(dag, "Limited"),
        features={"number": FeatureSpec("int64")},
        **options,
    )


def unlimited() -> Declaration:
    return limited(record_timeout_secs=None, record_memory_bytes=None)


def strict() -> Declaration:
    return limited(on_error="fail")


def dropping() -> Declaration:
    return limited(on_error="drop")


def more_time() -> Declaration:
    return limited(record_timeout_secs=0.6)


def batched() -> Declaration:
    number, batched_ = Number(), Batched()
    return limited(dag={number: Input(str), batched_: number, Output("train"): batched_})
