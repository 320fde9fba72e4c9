from parakeet.data import BatchSampler, SequentialSampler

sampler = SequentialSampler(range(10))
answer = [list(BatchSampler(sampler, batch_size=3, drop_last=last)) for last in (False, True)]
# gives [[[0, 1, 2], [3, 4, 5], [6, 7, 8], [9]], [[0, 1, 2], [3, 4, 5], [6, 7, 8]]]
