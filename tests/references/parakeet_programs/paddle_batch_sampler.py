from paddle.io import BatchSampler

answer = [
    list(BatchSampler(dataset=range(5), batch_size=2)),
    sorted(sum(BatchSampler(dataset=range(5), shuffle=True, batch_size=2), [])),
]
# gives [[[0, 1], [2, 3], [4]], [0, 1, 2, 3, 4]]
