from midas import DataLoader


def numbers():
    for i in range(10):
        yield {"x": i, "y": [i] * 3}


answer = [batch["y"].sum(axis=1).tolist() for batch in DataLoader(numbers).batch(4).to_numpy()]
# gives [[0, 3, 6, 9], [12, 15, 18, 21], [24, 27]]
