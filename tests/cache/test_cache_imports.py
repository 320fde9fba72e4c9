"""The cache needs NumPy, protobuf and crc32c; nothing heavy comes with it."""

from __future__ import annotations

import subprocess
import sys


def test_importing_the_cache_loads_no_beam_tensorflow_jax_or_torch() -> None:
    code = (
        "import sys, beam_pipes.cache\n"
        "heavy = {'apache_beam', 'tensorflow', 'jax', 'torch', 'pyarrow', 'ml_dtypes', 'pandas'}\n"
        "print(sorted(heavy & sys.modules.keys()))"
    )

    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert found.stdout == "[]\n"
