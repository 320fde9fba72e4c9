from parakeet.data import WeightedRandomSampler

drawn = list(WeightedRandomSampler([0.0, 1.0, 0.0], 6, replacement=True))
answer = drawn
# gives [1, 1, 1, 1, 1, 1]
