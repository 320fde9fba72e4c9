from paddle.io import Dataset
from parakeet.data import TransformDataset


class Lines(Dataset):
    def __init__(self, lines):
        self.lines = lines

    def __getitem__(self, i):
        return self.lines[i]

    def __len__(self):
        return len(self.lines)


answer = list(TransformDataset(Lines(["a", "bb"]), len))
# gives [1, 2]
