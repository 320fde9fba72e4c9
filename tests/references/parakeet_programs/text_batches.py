import numpy as np
from parakeet.data import batch_text_id

answer = batch_text_id([np.array([1, 2, 3]), np.array([4])], pad_id=0).tolist()
# gives [[1, 2, 3], [4, 0, 0]]
