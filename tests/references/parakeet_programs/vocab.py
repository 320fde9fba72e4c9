from parakeet.frontend import Vocab

vocab = Vocab(["a", "b", "a"], end_symbol=None)
vocab.add_symbols(["b", "c"])
answer = [
    len(vocab),
    vocab.num_specials,
    vocab.lookup("c"),
    vocab.reverse(3),
    vocab.end_index,
    vocab.padding_index,
    vocab.stoi,
]
# gives [6, 3, 5, 'a', -1, 0, {'<pad>': 0, '<unk>': 1, '<s>': 2, 'a': 3, 'b': 4, 'c': 5}]
