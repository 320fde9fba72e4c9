from paddle.io import DistributedBatchSampler

answer = [list(DistributedBatchSampler(range(10), 2, num_replicas=2, rank=rank)) for rank in range(2)]
# gives [[[0, 1], [4, 5], [8]], [[2, 3], [6, 7], [9]]]
