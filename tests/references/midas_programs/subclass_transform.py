from midas import DataLoader
from midas.generic_dataloaders import LambdaDataLoader


class ToLists(LambdaDataLoader):
    def _transform(self, data):
        return {key: value.numpy().tolist() for key, value in data.items()}


def numbers():
    for i in range(10):
        yield {"x": i, "y": [i] * 3}


ldl = DataLoader(numbers).batch(5).to_lambdaDataLoader(ToLists)
answer = [b["x"] for b in ldl] + ldl.get_transformation_list()[1:]
# gives [[0, 1, 2, 3, 4], [5, 6, 7, 8, 9], 'tf.data.Dataset.batch', 'ToLists']
