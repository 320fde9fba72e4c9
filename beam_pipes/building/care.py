"""An earlier place of `takedown`: `from beam_pipes.building.care.takedown import take_down` goes on working."""

from __future__ import annotations

import sys

from beam_pipes.building import takedown

sys.modules[f"{__name__}.takedown"] = takedown
