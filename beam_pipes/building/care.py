"""An earlier place of two modules: `from beam_pipes.building.care.takedown import take_down` goes on working."""

from __future__ import annotations

import sys

from beam_pipes.building import takedown, trace

sys.modules.update({f"{__name__}.takedown": takedown, f"{__name__}.trace": trace})
