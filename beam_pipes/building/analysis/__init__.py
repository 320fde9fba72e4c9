"""How the analyzers of a declaration run: before its pipeline, over the same source shards, in rounds.

| word | meaning |
| --- | --- |
| analysis plan | which accumulators and results exist, and which are missing |
| analysis task | one source shard, and the analyzers that lack an accumulator for it |
| stored | a file or directory below `DIR/analysis`, with a checksum record that is written last |

The protocol of analyzers is in `beam_pipes.analysis`.
"""
