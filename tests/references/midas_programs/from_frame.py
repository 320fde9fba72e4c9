import pandas as pd
from midas import DataLoader

dl = DataLoader(pd.DataFrame({"x": [1, 2, 3], "word": ["a", "b", "c"]}))
answer = [
    dl.get_n_samples(),
    [b["x"].tolist() for b in dl.batch(2).to_torch(skip_keys=["word"])],
    dl.get_transformation_list(),
]
# gives [3, [[1, 2], [3]], ['tf.data.Dataset.from_tensor_slices']]
