from midas import DataLoader


def numbers():
    for i in range(10):
        yield {"x": i, "y": [i] * 3}


jdl = DataLoader(numbers).batch(5).to_jax().prefetch_to_devices(size=3).lambda_transformation(lambda b: {"z": -b["x"]})
answer = [batch["z"].tolist() for batch in jdl]
# gives [[0, -1, -2, -3, -4], [-5, -6, -7, -8, -9]]
