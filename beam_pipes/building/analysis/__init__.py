"""How the analyzers of a declaration run: before its pipeline, over the same source shards, in rounds.

| word | meaning |
| --- | --- |
| analysis plan | which accumulators and results are there already, and which are to be made |
| analysis task | one source shard, and the analyzers that have no accumulator of it |
| stored | a file or a directory below `DIR/analysis`, with the record that is written last and checks it |

The protocol of analyzers is in `beam_pipes.analysis`.
"""
