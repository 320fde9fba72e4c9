"""Another day: the clock of a process set forward, for everything that is imported afterwards."""

from __future__ import annotations

import datetime as datetime_module
import time
from typing import Any

# To another year, month, day, weekday and hour.
SHIFT_SECS = 400 * 86_400 + 5 * 3_600


def shift_clock(shift_secs: int = SHIFT_SECS) -> None:
    """Sets `time` and `datetime` of this process forward, for good; monotonic clocks stay as they are."""
    real_time, real_time_ns = time.time, time.time_ns
    real_datetime, real_date = datetime_module.datetime, datetime_module.date
    shift = datetime_module.timedelta(seconds=shift_secs)

    def now(secs: float | None = None) -> float:
        return real_time() + shift_secs if secs is None else secs

    def of_time(function: Any) -> Any:
        return lambda secs=None: function(now(secs))

    def of_tuple(function: Any, localtime: Any, before: int) -> Any:
        return lambda *arguments: function(*arguments, *([localtime(now())] if len(arguments) == before else []))

    class AnyOf(type):
        """Instances of the real class count as instances of the shifted one."""

        def __instancecheck__(cls, value: object) -> bool:
            return isinstance(value, real_datetime if cls.__name__ == "datetime" else real_date)

    class date(real_date, metaclass=AnyOf):  # type: ignore[misc,valid-type]
        @classmethod
        def today(cls) -> Any:
            return cls.fromordinal((real_datetime.now() + shift).toordinal())

    class datetime(real_datetime, metaclass=AnyOf):  # type: ignore[misc,valid-type]
        @classmethod
        def now(cls, tz: Any = None) -> Any:
            return real_datetime.now.__func__(cls, tz) + shift  # type: ignore[attr-defined]

        @classmethod
        def utcnow(cls) -> Any:
            return real_datetime.utcnow.__func__(cls) + shift  # type: ignore[attr-defined]

        @classmethod
        def today(cls) -> Any:
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
