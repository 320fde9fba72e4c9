"""Other surroundings: what may differ between workers without affecting a stage's output."""

from __future__ import annotations

import contextlib
import dataclasses
import locale
import os
import tempfile
import time
from collections.abc import Iterator

from beam_pipes.building.declaration import Declaration
from beam_pipes.identity.canonical import Asset

#: Factors in the order in which differences are attributed to them; "process" is just another process.
FACTORS = ("process", "hash_seed", "working_directory", "environment", "time_zone", "locale")

# Variables that a process needs to work at all, or that libraries read to find installed files.
_KEPT = {
    "PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "TMPDIR", "VIRTUAL_ENV",
}  # fmt: skip
_KEPT_PREFIXES = ("PYTHON", "LD_", "DYLD_", "CUDA", "TF_", "OMP_", "MKL_", "OPENBLAS", "XDG_", "BEAM_PIPES_")

# In the POSIX form (west is positive), which needs no database of zones. Each is more than a day away from any local
# time on the other side of Greenwich, so that local dates differ too.
_TIME_ZONE_IN_THE_EAST, _TIME_ZONE_IN_THE_WEST = "XYZ-24:45", "XYZ+24:45"


@contextlib.contextmanager
def surroundings(declaration: Declaration, factors: tuple[str, ...]) -> Iterator[None]:
    """Applies the factors to this process while stages run."""
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
                os.environ["TZ"] = _TIME_ZONE_IN_THE_EAST if time.timezone >= 0 else _TIME_ZONE_IN_THE_WEST
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
    """Assets belong to the declaration wherever it runs: relative paths start where it was declared."""
    for unit in declaration.graph.units:
        stage = unit.stage
        for name, value in list(getattr(stage, "__dict__", {}).items()):
            if isinstance(value, Asset) and not os.path.isabs(value.path):
                stage.__dict__[name] = dataclasses.replace(value, path=os.path.abspath(value.path))
