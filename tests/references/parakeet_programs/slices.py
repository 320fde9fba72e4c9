from paddle.io import Dataset
from parakeet.data import SliceDataset


class Lines(Dataset):
    def __init__(self, lines):
        self.lines = lines

    def __getitem__(self, i):
        return self.lines[i]

    def __len__(self):
        return len(self.lines)


half = SliceDataset(Lines(list(range(10))), 2, 6)
answer = [len(half), list(half)]
# gives [4, [2, 3, 4, 5]]
