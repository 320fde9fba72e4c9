"""Other surroundings: what may differ from one worker to the next without showing in what a stage gives.

Another day: the clock of a process set forward, for everything that is imported afterwards.
"""

from __future__ import annotations

import contextlib
import dataclasses
import datetime as datetime_module
import locale
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from typing import Any

from beam_pipes.building.declaration import Declaration
from beam_pipes.identity.canonical import Asset

#: What can differ, in the order in which a difference is put down to it; "process" is nothing but another process.
FACTORS = ("process", "hash_seed", "clock", "working_directory", "environment", "time_zone", "locale")

# Variables that make a process work at all, or that libraries read to find what was installed.
_KEPT = {
    "PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "TMPDIR", "VIRTUAL_ENV",
}  # fmt: skip
_KEPT_PREFIXES = ("PYTHON", "LD_", "DYLD_", "CUDA", "TF_", "OMP_", "MKL_", "OPENBLAS", "XDG_", "BEAM_PIPES_")

# As POSIX writes them, so that no database of zones is needed: 13 h 45 min east of Greenwich.
_TIME_ZONE = "XYZ-13:45"


@contextlib.contextmanager
def surroundings(declaration: Declaration, factors: tuple[str, ...]) -> Iterator[None]:
    """Makes the factors hold for this process while stages run; the clock is set before anything is imported."""
    _make_assets_absolute(declaration)
    variables, directory = dict(os.environ), os.getcwd()
    before = locale.setlocale(locale.LC_ALL)
    with tempfile.TemporaryDirectory(prefix="elsewhere-") as elsewhere:
        try:
            if "working_directory" in factors:
                os.chdir(elsewhere)
            if "environment" in factors:
                for name in variables:
                    if name not in _KEPT and not name.startswith(_KEPT_PREFIXES):
                        del os.environ[name]
            if "time_zone" in factors:
                os.environ["TZ"] = _TIME_ZONE
                time.tzset()
            if "locale" in factors:
                locale.setlocale(locale.LC_ALL, "C")
            yield
        finally:
            os.chdir(directory)
            os.environ.clear()
            os.environ.update(variables)
            time.tzset()
            locale.setlocale(locale.LC_ALL, before)


def _make_assets_absolute(declaration: Declaration) -> None:
    """Assets belong to the declaration, wherever it runs: a relative one is relative to where it was declared."""
    for unit in declaration.graph.units:
        stage = unit.stage
        for name, value in list(getattr(stage, "__dict__", {}).items()):
            if isinstance(value, Asset) and not os.path.isabs(value.path):
                stage.__dict__[name] = dataclasses.replace(value, path=os.path.abspath(value.path))


# To another year, month, day, weekday and hour.
SHIFT_SECS = 400 * 86_400 + 5 * 3_600


def shift_clock(shift_secs: int = SHIFT_SECS) -> None:
    """Sets `time` and `datetime` of this process forward for good; monotonic clocks are unchanged."""
    real_time, real_time_ns = time.time, time.time_ns
    real_datetime, real_date = datetime_module.datetime, datetime_module.date
    shift = datetime_module.timedelta(seconds=shift_secs)

    def now(secs: float | None = None) -> float:
        return real_time() + shift_secs if secs is None else secs

    def of_time(function: Callable[[float], object]) -> object:
        return lambda secs=None: function(now(secs))

    def of_tuple(function: Callable[..., object], localtime: Callable[[float], object], before: int) -> object:
        return lambda *arguments: function(*arguments, *([localtime(now())] if len(arguments) == before else []))

    class AnyOf(type):
        """Instances of the real class count as instances of the shifted one."""

        def __instancecheck__(cls, value: object) -> bool:
            return isinstance(value, real_datetime if cls.__name__ == "datetime" else real_date)

    class date(real_date, metaclass=AnyOf):  # type: ignore[misc,valid-type]
        @classmethod
        def today(cls) -> object:
            return cls.fromordinal((real_datetime.now() + shift).toordinal())

    class datetime(real_datetime, metaclass=AnyOf):  # type: ignore[misc,valid-type]
        @classmethod
        def now(cls, tz: object = None) -> Any:
            return real_datetime.now.__func__(cls, tz) + shift  # type: ignore[attr-defined]

        @classmethod
        def utcnow(cls) -> Any:
            return real_datetime.utcnow.__func__(cls) + shift  # type: ignore[attr-defined]

        @classmethod
        def today(cls) -> object:
            return cls.now()

    for cls in (date, datetime):
        cls.__module__, cls.__qualname__ = "datetime", cls.__name__
    replaced = {
        "time": lambda: real_time() + shift_secs,
        "time_ns": lambda: real_time_ns() + shift_secs * 10**9,
        "localtime": of_time(time.localtime),
        "gmtime": of_time(time.gmtime),
        "ctime": of_time(time.ctime),
        "asctime": of_tuple(time.asctime, time.localtime, 0),
        "strftime": of_tuple(time.strftime, time.localtime, 1),
    }
    for name, function in replaced.items():
        setattr(time, name, function)
    datetime_module.date, datetime_module.datetime = date, datetime  # type: ignore[misc]
