import tensorflow as tf
from midas import DataLoader


def floats():
    for i in range(4):
        yield {"x": i}


dl = DataLoader(floats, output_signature={"x": tf.TensorSpec((), tf.float32)})
answer = [float(s["x"]) for s in dl]
# gives [0.0, 1.0, 2.0, 3.0]
