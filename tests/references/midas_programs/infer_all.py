from midas import DataLoader


def late():
    for i in range(6):
        yield {"ids": [1, 2] if i < 5 else [1, 2, 3]}


dl = DataLoader(late, infer_k=-1)
answer = [list(dl.output_signature["ids"].shape), dl.get_n_samples()]
# gives [[None], 6]
