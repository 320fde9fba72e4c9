from parakeet.data import SequentialSampler

answer = list(SequentialSampler([10, 20, 30]))
# gives [0, 1, 2]
