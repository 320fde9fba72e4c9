from paddle.io import Dataset
from parakeet.data import DictDataset, TupleDataset


class Lines(Dataset):
    def __init__(self, lines):
        self.lines = lines

    def __getitem__(self, i):
        return self.lines[i]

    def __len__(self):
        return len(self.lines)


texts, sizes = Lines(["a", "bb"]), Lines([1, 2])
answer = [list(TupleDataset(texts, sizes)), list(DictDataset(text=texts, size=sizes))]
# gives [[('a', 1), ('bb', 2)], [{'text': 'a', 'size': 1}, {'text': 'bb', 'size': 2}]]
