from paddle.io import Dataset
from parakeet.data import CacheDataset, TransformDataset


class Lines(Dataset):
    def __init__(self, lines):
        self.lines = lines

    def __getitem__(self, i):
        return self.lines[i]

    def __len__(self):
        return len(self.lines)


calls = []


def slow(line):
    calls.append(line)
    return line * 2


cached = CacheDataset(TransformDataset(Lines([1, 2]), slow))
answer = [list(cached), list(cached), calls]
# gives [[2, 4], [2, 4], [1, 2]]
