import jax
from midas import DataLoader


def numbers():
    for i in range(10):
        yield {"x": i, "y": [i] * 3}


jdl = DataLoader(numbers).batch(10).to_jax().shard(1).prefetch_to_devices()
step = jax.pmap(lambda x: x * 2)
answer = [step(b["x"].reshape(jax.local_device_count(), -1)).reshape(-1).tolist() for b in jdl]
# gives [[0, 2, 4, 6, 8, 10, 12, 14, 16, 18]]
