from paddle.io import DistributedBatchSampler

answer = [
    list(DistributedBatchSampler(range(5), 2, num_replicas=2, rank=rank, drop_last=last))
    for rank in range(2)
    for last in (False, True)
]
# gives [[[0, 1], [4]], [[0, 1]], [[2, 3], [0]], [[2, 3]]]
