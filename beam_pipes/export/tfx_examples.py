"""TFX `Examples`: a directory a split with gzipped TFRecords of examples whose numbers are lists, not raw bytes."""

from __future__ import annotations

import dataclasses
import gzip
import os

from beam_pipes.cache.codec import ExampleCodec
from beam_pipes.cache.framing import header_of, masked_crc32c
from beam_pipes.cache.reader import Cache
from beam_pipes.cache.spec import ExampleSpec
from beam_pipes.errors import ExportError, SpecError
from beam_pipes.export.kept_rows import examples_of

# Records of a file: TFX reads files in parallel, and a gzipped one from its start only.
_RECORDS_OF_A_FILE = 100_000


def write_tfx_examples(cache: Cache, directory: str) -> None:
    """Writes `Split-NAME/data_tfrecord-00000-of-00002.gz`, the layout of TFX's ExampleGen.

    Raises `ExportError` for splits that hold no examples, and for numbers that a list cannot hold exactly (float64).
    """
    for name in cache.splits:
        split = cache[name]
        if split.kind != "example":
            raise ExportError(
                f"split {name!r} holds {split.kind} records, and TFX takes examples. Export it as parquet."
            )
        try:
            spec = ExampleSpec(
                {key: dataclasses.replace(feature, encoding="list") for key, feature in split.spec.items()}
            )
        except SpecError as error:
            raise ExportError(f"split {name!r} does not fit the lists of an Example: {error}") from error
        codec = ExampleCodec(spec)
        target = os.path.join(directory, f"Split-{name}")
        os.makedirs(target)
        num_files = max(1, -(-len(split) // _RECORDS_OF_A_FILE))
        examples = examples_of(split)
        for number in range(num_files):
            path = os.path.join(target, f"data_tfrecord-{number:05d}-of-{num_files:05d}.gz")
            with gzip.GzipFile(path, "wb", compresslevel=6, mtime=0) as file:
                for _, example in zip(range(_RECORDS_OF_A_FILE), examples, strict=False):
                    payload = codec.encode(example)
                    footer = masked_crc32c(payload).to_bytes(4, "little")
                    file.write(header_of(len(payload)) + payload + footer)
