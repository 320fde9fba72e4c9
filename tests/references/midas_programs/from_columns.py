import numpy as np
from midas import DataLoader

dl = DataLoader({"a": np.arange(6).reshape(3, 2), "b": [1.5, 2.5, 3.5]}).shuffle(3, seed=0).batch(3)
(batch,) = dl.to_numpy()
answer = [sorted(batch["a"].tolist()), sorted(batch["b"].tolist())]
# gives [[[0, 1], [2, 3], [4, 5]], [1.5, 2.5, 3.5]]
