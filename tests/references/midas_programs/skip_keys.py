from midas import DataLoader


def named():
    for i, name in enumerate(["a", "b"]):
        yield {"x": i, "name": name}


(batch,) = DataLoader(named).batch(2).to_jax(skip_keys=["name"])
answer = [batch["x"].tolist(), batch["name"].numpy().tolist() == [b"a", b"b"]]
# gives [[0, 1], True]
