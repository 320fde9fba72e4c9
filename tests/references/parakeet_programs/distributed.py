from parakeet.data import DistributedSampler

answer = [list(DistributedSampler(16, 4, rank, shuffle=False)) for rank in range(4)]
# gives [[0, 4, 8, 12], [1, 5, 9, 13], [2, 6, 10, 14], [3, 7, 11, 15]]
