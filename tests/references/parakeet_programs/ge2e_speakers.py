import numpy as np
from paddle.io import BatchSampler, DataLoader, Dataset


class Utterances(Dataset):
    """As GE2E's: an example is asked by its path."""

    def __init__(self):
        self.of_speakers = {f"s{n}": [f"s{n}/{k}.npy" for k in range(4)] for n in range(3)}

    def __getitem__(self, path):
        return np.full(2, int(path[1]))

    def __len__(self):
        return len(self.of_speakers)


class Speakers(BatchSampler):
    """Two utterances of each of two speakers; the constructor of its base is not called."""

    def __init__(self, dataset):
        self.of_speakers = dataset.of_speakers

    def __iter__(self):
        for pair in (("s0", "s1"), ("s2", "s0")):
            yield [path for speaker in pair for path in self.of_speakers[speaker][:2]]

    def __len__(self):
        return 2


dataset = Utterances()
answer = []
for workers in (0, 2):
    loader = DataLoader(dataset, batch_sampler=Speakers(dataset), collate_fn=np.stack, num_workers=workers)
    answer.append([batch[:, 0].tolist() for batch in loader])
# gives [[[0, 0, 1, 1], [2, 2, 0, 0]], [[0, 0, 1, 1], [2, 2, 0, 0]]]
