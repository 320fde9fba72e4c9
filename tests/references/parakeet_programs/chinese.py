from parakeet.frontend import Chinese

frontend = Chinese()
ids = frontend("绿色，你好吗？")
answer = [frontend.phoneticize("綠色，你好嗎？"), frontend.reverse(ids)[1:3], len(ids)]
# gives [['<s>', 'lu:4', 'se4', '，', 'ni3', 'hao3', 'ma5', '？', '</s>'], ['lu:4', 'se4'], 9]
