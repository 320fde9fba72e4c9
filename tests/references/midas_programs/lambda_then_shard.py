from midas import DataLoader


def numbers():
    for i in range(10):
        yield {"x": i, "y": [i] * 3}


jdl = (
    DataLoader(numbers)
    .batch(10)
    .to_jax()
    .lambda_transformation(lambda b: {"z": b["x"] * 2})
    .shard()
    .prefetch_to_devices()
)
answer = [batch["z"].tolist() for batch in jdl]
# gives [[0, 2, 4, 6, 8, 10, 12, 14, 16, 18]]
