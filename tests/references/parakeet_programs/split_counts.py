from paddle.io import Dataset
from parakeet.data import dataset


class Lines(Dataset):
    def __init__(self, lines):
        self.lines = lines

    def __getitem__(self, i):
        return self.lines[i]

    def __len__(self):
        return len(self.lines)


valid, train = dataset.split(Lines(list(range(5))), 2)
answer = [list(valid), list(train)]
# gives [[0, 1], [2, 3, 4]]
