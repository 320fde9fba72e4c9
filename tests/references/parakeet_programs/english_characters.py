from parakeet.frontend import EnglishCharacter

frontend = EnglishCharacter()
answer = [frontend.phoneticize("To  Be!"), frontend.reverse(frontend("To  Be!")), frontend.vocab_size]
# gives [["<s>", "to", "be!", "</s>"], ["<s>", "t", "o", "b", "e", "!", "</s>"], 37]
