import jax.numpy as jnp
from midas import DataLoader


def total(batch):
    batch["y"] = jnp.sum(batch["y"], axis=-1)
    return batch


def last(batch):
    batch["z"] = jnp.argmax(batch["x"], axis=-1)
    return batch


def numbers():
    for i in range(10):
        yield {"x": i, "y": [i] * 3}


jdl = DataLoader(numbers).batch(5).to_jax().lambda_transformation(total).lambda_transformation(last)
answer = [[b["y"].tolist(), int(b["z"])] for b in jdl] + jdl.get_transformation_list()[-2:]
# gives [[[0, 3, 6, 9, 12], 4],
#  [[15, 18, 21, 24, 27], 4],
#  "midas.JaxDataLoader.lambda_transformation",
#  "midas.JaxDataLoader.lambda_transformation"]
