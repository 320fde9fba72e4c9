import numpy as np
from parakeet.data import batch_spec, batch_wav

waves = batch_wav([np.ones(3, np.float32), np.ones(2, np.float32)])
specs = batch_spec([np.ones((4, 3), np.float32), np.ones((4, 1), np.float32)])
answer = [waves.tolist(), list(specs.shape), float(specs[1].sum())]
# gives [[[1.0, 1.0, 1.0], [1.0, 1.0, 0.0]], [2, 4, 3], 4.0]
