from paddle.io import Dataset
from parakeet.data import SubsetDataset


class Lines(Dataset):
    def __init__(self, lines):
        self.lines = lines

    def __getitem__(self, i):
        return self.lines[i]

    def __len__(self):
        return len(self.lines)


answer = list(SubsetDataset(Lines([10, 11, 12, 13]), [3, 0]))
# gives [13, 10]
