import numpy as np
from midas import DataLoader

rows = np.array([(1, 0.5), (2, 1.5)], dtype=[("x", np.int32), ("y", np.float32)])
answer = [{key: value.item() for key, value in sample.items()} for sample in DataLoader(rows).to_numpy()]
# gives [{"x": 1, "y": 0.5}, {"x": 2, "y": 1.5}]
