from midas import DataLoader


def numbers():
    for i in range(10):
        yield {"x": i, "y": [i] * 3}


spec = DataLoader(numbers).output_signature
answer = {key: [list(value.shape), value.dtype.name, value.name] for key, value in spec.items()}
# gives {'x': [[], 'int32', 'x_input'], 'y': [[3], 'int32', 'y_input']}
