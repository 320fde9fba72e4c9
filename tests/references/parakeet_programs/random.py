from parakeet.data import RandomSampler

sampler = RandomSampler(list(range(100)))
once = list(sampler)
answer = [len(sampler), sorted(once) == list(range(100)), once != sorted(once)]
# gives [100, True, True]
