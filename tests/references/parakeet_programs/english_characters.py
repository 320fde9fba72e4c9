from parakeet.frontend import EnglishCharacter

frontend = EnglishCharacter()
answer = [frontend.reverse(frontend("To  Be!")), frontend.vocab_size == len(frontend.vocab)]
# gives [['<s>', 't', 'o', ' ', 'b', 'e', '!', '</s>'], True]
