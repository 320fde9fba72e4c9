"""Sharding over several devices: in processes of their own, because the number of devices is fixed when JAX starts."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import textwrap

PRELUDE = """
import numpy as np, jax, pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
from beam_pipes.errors import ConversionError, LoaderError
from beam_pipes.on_device import DataLoader, JaxDataLoader
batches = [{"x": np.arange(12, dtype=np.int32).reshape(4, 3) + 100 * i, "n": np.float32(i)} for i in range(3)]
assert len(jax.devices()) == 4
"""


def in_process(program: str, *, devices: int = 4) -> None:
    environment = {
        **os.environ,
        "XLA_FLAGS": f"--xla_force_host_platform_device_count={devices}",
        "JAX_PLATFORMS": "cpu",
    }
    finished = subprocess.run(
        [sys.executable, "-c", PRELUDE + textwrap.dedent(program)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert finished.returncode == 0, finished.stderr


def test_arrays_are_split_over_devices_and_prefetched_to_them_without_tensorflow():
    in_process("""
        import sys
        for loader in (JaxDataLoader(batches).shard(), JaxDataLoader(batches).shard().prefetch_to_devices()):
            for batch, expected in zip(loader, batches, strict=True):
                x = batch["x"]
                assert len(x.sharding.device_set) == 4
                assert [s.data.tolist() for s in x.addressable_shards] == [[row] for row in expected["x"].tolist()]
                assert batch["n"].is_fully_replicated and len(batch["n"].sharding.device_set) == 4
                np.testing.assert_array_equal(np.asarray(x), expected["x"])
                assert jax.jit(lambda x: x.sum())(x) == expected["x"].sum()
        assert "tensorflow" not in sys.modules and "torch" not in sys.modules

        some = JaxDataLoader(batches).shard(jax.devices()[1:3])
        assert {d.id for d in next(iter(some))["x"].devices()} == {1, 2}

        mesh = Mesh(np.array(jax.devices()).reshape(2, 2), ("data", "model"))
        over_mesh = next(iter(JaxDataLoader(batches).shard(mesh)))["x"]
        assert over_mesh.sharding.spec == P(("data", "model"))
        own = NamedSharding(mesh, P("data"))
        assert next(iter(JaxDataLoader(batches).shard(own)))["x"].sharding == own

        with pytest.raises(ConversionError, match=r"'x' has shape \\(3, 2\\), which does not divide over 4 devices"):
            list(JaxDataLoader([{"x": np.zeros((3, 2))}]).shard())
        with pytest.raises(ConversionError, match="drop_remainder=True"):
            list(JaxDataLoader([{"x": np.zeros((3, 2))}]).shard().prefetch_to_devices())
        with pytest.raises(LoaderError, match="at least one device"):
            JaxDataLoader(batches).shard([])

        changed = np.zeros((4, 3), np.float32)
        batch = next(iter(JaxDataLoader([{"x": changed}]).shard()))
        changed[:] = 1
        assert np.asarray(batch["x"]).max() == 0
    """)


def test_two_processes_make_one_global_array_of_their_parts():
    program = textwrap.dedent("""
        import sys, numpy as np, jax
        rank, port = int(sys.argv[1]), sys.argv[2]
        jax.distributed.initialize(f"127.0.0.1:{port}", num_processes=2, process_id=rank)
        from beam_pipes.on_device import JaxDataLoader
        part = {"x": np.full((2, 3), rank, np.int32), "n": np.int32(5)}
        (batch,) = JaxDataLoader([part]).shard().prefetch_to_devices()
        assert batch["x"].shape == (4, 3), batch["x"].shape
        assert [s.data.tolist() for s in batch["x"].addressable_shards] == [[[rank] * 3], [[rank] * 3]]
        assert int(batch["n"].addressable_data(0)) == 5
        jax.distributed.shutdown()
    """)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    environment = {**os.environ, "XLA_FLAGS": "--xla_force_host_platform_device_count=2", "JAX_PLATFORMS": "cpu"}
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", program, str(rank), port],
            env=environment,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    try:
        errors = [process.communicate(timeout=240)[1] for process in processes]
    finally:
        for process in processes:
            process.kill()

    assert [process.returncode for process in processes] == [0, 0], "\n".join(errors)
