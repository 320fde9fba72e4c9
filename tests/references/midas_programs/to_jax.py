from midas import DataLoader


def numbers():
    for i in range(10):
        yield {"x": i, "y": [i] * 3}


answer = [[batch["x"].tolist(), str(batch["x"].dtype)] for batch in DataLoader(numbers).take(3).batch(3).to_jax()]
# gives [[[0, 1, 2], 'int32']]
