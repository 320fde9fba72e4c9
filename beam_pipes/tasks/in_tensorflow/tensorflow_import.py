"""TensorFlow, imported where it is needed."""

from __future__ import annotations

import sys
from typing import Any

from beam_pipes.extras import require


def tensorflow(purpose: str) -> Any:
    """The `tensorflow` module, or `MissingExtraError` naming `purpose`.

    Inside a traced function it must already be loaded: looked up, not imported, since AutoGraph cannot read
    the import machinery.
    """
    loaded = sys.modules.get("tensorflow")
    return require("tensorflow", purpose=purpose) if loaded is None else loaded
