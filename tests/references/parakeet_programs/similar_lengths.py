from parakeet.data import PartialyRandomizedSimilarTimeLengthSampler

lengths = [9, 1, 8, 2, 7, 3, 6, 4]
order = list(PartialyRandomizedSimilarTimeLengthSampler(lengths, batch_size=2, batch_group_size=2))
answer = sorted(sorted(lengths[i] for i in order[k : k + 2]) for k in range(0, 8, 2))
# gives [[1, 2], [3, 4], [6, 7], [8, 9]]
