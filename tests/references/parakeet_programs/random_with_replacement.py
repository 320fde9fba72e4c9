from parakeet.data import RandomSampler

drawn = list(RandomSampler([0] * 5, replacement=True, num_samples=50))
answer = [len(drawn), min(drawn) >= 0, max(drawn) < 5]
# gives [50, True, True]
