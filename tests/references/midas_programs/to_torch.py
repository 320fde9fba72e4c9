from midas import DataLoader


def numbers():
    for i in range(10):
        yield {"x": i, "y": [i] * 3}


answer = [batch["x"].tolist() for batch in DataLoader(numbers).skip(6).batch(2).to_torch()]
# gives [[6, 7], [8, 9]]
