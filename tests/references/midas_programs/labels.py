from midas import DataLoader


def numbers():
    for i in range(10):
        yield {"x": i, "y": [i] * 3}


jdl = DataLoader(numbers).map(lambda s: {**s, "even": s["x"] % 2 == 0}).cache().shuffle(10).batch(5).to_jax()
answer = jdl.shard(1).prefetch_to_devices().get_transformation_list()
# gives ["tf.data.Dataset.from_generator",
#  "tf.data.Dataset.map",
#  "tf.data.Dataset.cache",
#  "tf.data.Dataset.shuffle",
#  "tf.data.Dataset.batch",
#  "midas.DataLoader.to_jax",
#  "midas.JaxDataLoader.shard",
#  "midas.JaxDataLoader.prefetch_to_devices"]
