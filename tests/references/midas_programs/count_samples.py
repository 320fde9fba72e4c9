from midas import DataLoader


def numbers():
    for i in range(10):
        yield {"x": i, "y": [i] * 3}


dl = DataLoader(numbers).batch(4)
answer = [dl.get_python_iterator_n_samples(), dl.get_n_samples()]
# gives [10, 3]
