from parakeet.data import SubsetRandomSampler

answer = sorted(SubsetRandomSampler([7, 3, 5]))
# gives [3, 5, 7]
