import tensorflow as tf
from midas import DataLoader

dl = DataLoader(tf.data.Dataset.range(6).map(lambda i: {"x": i})).batch(3)
answer = [batch["x"].tolist() for batch in dl.to_numpy()]
# gives [[0, 1, 2], [3, 4, 5]]
