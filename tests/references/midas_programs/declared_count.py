from midas import DataLoader


def numbers():
    for i in range(10):
        yield {"x": i, "y": [i] * 3}


dl = DataLoader(numbers, python_iterable_n_samples=10).batch(5, drop_remainder=True)
answer = [dl.get_python_iterator_n_samples(), dl.get_n_samples()]
# gives [10, 2]
