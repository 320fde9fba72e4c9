from midas import DataLoader


def texts():
    for i in range(6):
        yield {"ids": list(range(i + 1))}


answer = list(DataLoader(texts).output_signature["ids"].shape)
# gives [None]
