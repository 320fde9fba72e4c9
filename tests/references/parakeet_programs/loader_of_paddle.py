from paddle.io import DataLoader, Dataset


class Lines(Dataset):
    def __init__(self, lines):
        self.lines = lines

    def __getitem__(self, i):
        return self.lines[i]

    def __len__(self):
        return len(self.lines)


loader = DataLoader(
    Lines([1, 2, 3]),
    places=None,
    return_list=False,
    batch_size=2,
    drop_last=True,
    collate_fn=sum,
    use_shared_memory=False,
    num_workers=1,
)
answer = [len(loader), list(loader), list(loader)]
# gives [1, [3], [3]]
