"""The engine: it runs a graph of units with flat-map semantics over batches of records, and collects statistics.

| word | meaning |
| --- | --- |
| stage | an object with `transform(value) -> list` (or a dict of lists) |
| unit | a stage at its place in a graph: its name, and where its inputs come from |
| graph | units in a fixed topological order, and the named outputs |
| column | for each record of a batch, the list of values from one output of one unit |
"""
