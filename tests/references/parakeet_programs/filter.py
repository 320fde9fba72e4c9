from paddle.io import Dataset
from parakeet.data import FilterDataset


class Lines(Dataset):
    def __init__(self, lines):
        self.lines = lines

    def __getitem__(self, i):
        return self.lines[i]

    def __len__(self):
        return len(self.lines)


answer = list(FilterDataset(Lines(["a", "bbb", "cc"]), lambda line: len(line) > 1))
# gives ['bbb', 'cc']
