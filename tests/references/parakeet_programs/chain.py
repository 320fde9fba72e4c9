from paddle.io import Dataset
from parakeet.data import ChainDataset


class Lines(Dataset):
    def __init__(self, lines):
        self.lines = lines

    def __getitem__(self, i):
        return self.lines[i]

    def __len__(self):
        return len(self.lines)


both = ChainDataset(Lines([1, 2]), Lines([3]))
answer = [len(both), list(both)]
# gives [3, [1, 2, 3]]
