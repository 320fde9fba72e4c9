from midas import DataLoader


def numbers():
    for i in range(10):
        yield {"x": i, "y": [i] * 3}


tdl = DataLoader(numbers).batch(5).to_torch().lambda_transformation(lambda b: {"mean": b["x"].float().mean()})
answer = [float(batch["mean"]) for batch in tdl]
# gives [2.0, 7.0]
