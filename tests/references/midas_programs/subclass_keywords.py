from midas import DataLoader
from midas.generic_dataloaders import LambdaDataLoader


class Scaled(LambdaDataLoader):
    def __init__(self, input_dataset, scale=10, **kwargs):
        super().__init__(input_dataset=input_dataset, **kwargs)
        self.scale = scale

    def _transform(self, data):
        return int(data["x"]) * self.scale


def numbers():
    for i in range(10):
        yield {"x": i, "y": [i] * 3}


ldl = DataLoader(numbers).take(3).to_lambdaDataLoader(Scaled)
answer = [list(ldl), ldl.get_n_samples(), ldl.get_python_iterator_n_samples(), ldl.get_transformation_list()[-1]]
# gives [[0, 10, 20], 3, 10, 'Scaled']
