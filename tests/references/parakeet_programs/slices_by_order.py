from paddle.io import Dataset
from parakeet.data import SliceDataset


class Lines(Dataset):
    def __init__(self, lines):
        self.lines = lines

    def __getitem__(self, i):
        return self.lines[i]

    def __len__(self):
        return len(self.lines)


answer = list(SliceDataset(Lines([10, 11, 12, 13]), 0, 2, order=[3, 1, 0, 2]))
# gives [13, 11]
