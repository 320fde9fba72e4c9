from midas import DataLoader


class Squares:
    def __iter__(self):
        return ({"x": i * i} for i in range(4))


dl = DataLoader(Squares())
answer = [[int(s["x"]) for s in dl] for _ in range(2)]
# gives [[0, 1, 4, 9], [0, 1, 4, 9]]
