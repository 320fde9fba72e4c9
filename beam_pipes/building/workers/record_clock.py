"""How long a worker has been at one record: without the time in which it could have run and was given no core.

The system tells of a wait only when it is over: for as long as the worker waits, it looks as if it worked, and what it
waited is taken off afterwards. On a machine with five times as much to do as cores that is 90 ms at once, four looks.
"""

from __future__ import annotations


class RecordClock:
    """Told at each look what time it is and how long the worker has waited since it began, both in seconds.

    Of what lies between two looks no more than `most_secs` count: a supervisor that had to wait itself, because the
    whole machine stood still, does not know whose time it was.
    """

    def __init__(self, *, most_secs: float, now: float, waited: float) -> None:
        self._most_secs = most_secs
        self._now, self._waited = now, waited
        self._left_out = 0.0  # since the worker was last seen to wait
        self.spent_secs = 0.0

    def restart(self) -> None:
        """Another record."""
        self.spent_secs = self._left_out = 0.0

    def look(self, *, now: float, waited: float) -> None:
        """What has passed since the last look is the record's."""
        passed = (now - self._now) - (waited - self._waited)
        has_waited = waited > self._waited
        self._now, self._waited = now, waited
        if passed < 0:  # what was left out has not been counted, and is not taken off either
            passed = min(0.0, passed + self._left_out)
        counted = min(passed, self._most_secs)
        self._left_out = 0.0 if has_waited else self._left_out + passed - counted
        self.spent_secs = max(0.0, self.spent_secs + counted)
