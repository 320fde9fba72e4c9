from parakeet.data import BucketSampler

lengths = [9, 1, 8, 2, 7, 3, 6, 4]
ranks = [list(BucketSampler(lengths, batch_size=2, batch_group_size=4, num_trainers=2, rank=rank)) for rank in range(2)]
steps = [[[lengths[i] for i in rank[k : k + 2]] for rank in ranks] for k in range(0, 4, 2)]
answer = [sorted(ranks[0] + ranks[1]), sorted(sorted(step[0] + step[1]) for step in steps)]
# gives [[0, 1, 2, 3, 4, 5, 6, 7], [[1, 2, 3, 4], [6, 7, 8, 9]]]
