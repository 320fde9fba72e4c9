"""A cache of byte-level tokens from this Python's own standard-library sources.

beam-pipes build examples.python_source:declaration --to .demo/python_source

The stages are in `transforms/source_text.py`.
"""

from __future__ import annotations

import sysconfig

from beam_pipes.building import Declaration
from beam_pipes.cache import FeatureSpec
from beam_pipes.sources import FileContent, Files
from beam_pipes.typed import DAGPipeline, Input, Output, RandomPartition
from transforms.source_text import ByteTokens, KeepProse

keep, tokenize = KeepProse(), ByteTokens()
partition = RandomPartition(dict, ["train", "eval"], [0.95, 0.05])

declaration = Declaration(
    name="python_source",
    source=Files(sysconfig.get_path("stdlib"), pattern="**/*.py", exclude="site-packages"),
    pipeline=DAGPipeline({keep: Input(FileContent), tokenize: keep, partition: tokenize, Output(): partition}, "Demo"),
    features={"path": FeatureSpec("str"), "tokens": FeatureSpec("uint16", shape=(None,), minimum=0, maximum=258)},
    target_shard_bytes=4 << 20,
)
