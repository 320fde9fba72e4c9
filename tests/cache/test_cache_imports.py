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


def test_descriptors_of_messages_are_loaded_with_the_first_message_and_once_in_all_threads() -> None:
    code = (
        "import sys, threading, pickle\n"
        "import beam_pipes.building.workers.pool, beam_pipes.typed, beam_pipes.loader\n"
        "from beam_pipes.cache import messages\n"
        "print('google.protobuf.descriptor_pb2' in sys.modules, hasattr(messages, 'Unknown'))\n"
        "barrier, seen = threading.Barrier(4), []\n"
        "def ask():\n"
        "    barrier.wait()\n"
        "    seen.append((messages.Example, messages.Features))\n"
        "threads = [threading.Thread(target=ask) for _ in range(4)]\n"
        "[thread.start() for thread in threads]\n"
        "[thread.join() for thread in threads]\n"
        "print(len(set(seen)), pickle.loads(pickle.dumps(messages.Example())) == messages.Example())"
    )

    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert found.stdout == "False False\n1 True\n"
