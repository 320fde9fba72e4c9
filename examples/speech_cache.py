"""The speech example, preprocessed once: the spectrograms are computed by a build and cached, training only reads them.

python -m examples.speech --to .demo/speech
beam-pipes build examples.speech_cache:declaration --to .demo/speech_cache
python -m examples.speech_cache .demo/speech_cache
"""

from __future__ import annotations

import dataclasses
import functools
import os
import sys
from collections.abc import Mapping
from typing import Any

import numpy as np

from beam_pipes.building import Asset, Declaration
from beam_pipes.cache import Cache, FeatureSpec
from beam_pipes.loader import random_access
from beam_pipes.map_style import (
    BatchSampler,
    DataLoader,
    RandomSampler,
    SimilarLengthBatchSampler,
    TransformDataset,
    padding_waste,
    split,
)
from beam_pipes.sources import FileContent, Files
from beam_pipes.typed import Histogram, Pipeline
from examples.speech import SPEAKER, Example, LJSpeechCollector, LJSpeechMetaData, Transform

# One a process: the filters of the spectrogram are worked out once.
transform_of_this_process = functools.cache(Transform)


@functools.cache
def transcripts(metadata: Asset) -> Mapping[str, str]:
    """Name of a clip → its normalised text."""
    records = LJSpeechMetaData(os.path.dirname(os.fspath(metadata))).records
    return {os.path.basename(file_name): text for file_name, text, _ in records}


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class SpeechFeatures(Pipeline):
    """A sound file and its transcript as phoneme ids, log mel spectrogram (time first) and stop marks."""

    input_type = FileContent
    output_type = dict
    metadata: Asset

    def transform(self, clip: FileContent) -> list[dict[str, Any]]:
        text = transcripts(self.metadata).get(os.path.basename(clip.path))
        if text is None:
            return self.drop("no_transcript")
        ids, mel, stop_probs = transform_of_this_process()([clip.content, text, SPEAKER])
        frames = Histogram("frames", [0, 50, 100, 200, 400])
        frames.increment(mel.shape[1])
        self._set_stats([frames])
        return [{"name": clip.path, "ids": ids, "mel": mel.T, "stop_probs": stop_probs}]


def declaration(corpus: str = ".demo/speech") -> Declaration:
    """The cache of a corpus in the layout of LJSpeech."""
    return Declaration(
        name="speech",
        source=Files(corpus, pattern="wavs/*.wav"),
        pipeline=SpeechFeatures(metadata=Asset(os.path.join(corpus, "metadata.csv"))),
        features={
            "name": FeatureSpec("str"),
            "ids": FeatureSpec("int64", shape=(None,), minimum=0, maximum=255),
            "mel": FeatureSpec("float32", shape=(None, 80)),
            "stop_probs": FeatureSpec("int64", shape=(None,), minimum=1, maximum=2),
        },
    )


def as_record(example: Mapping[str, Any]) -> Example:
    """What `LJSpeechCollector` takes: the spectrogram with its frequencies first."""
    return example["ids"], np.ascontiguousarray(example["mel"].T), example["stop_probs"]


def create_dataloader(cache_path: str, valid_size: int, batch_size: int) -> tuple[DataLoader, DataLoader]:
    """The loaders of `examples.speech`, over the cache instead of the sound files.

    Training batches hold clips of almost equal length: how long they are says the index, so no sound is read for it.
    """
    cached = Cache.open(cache_path)["train"]
    valid_set, train_set = split(TransformDataset(random_access(cached), as_record), valid_size)
    buckets = SimilarLengthBatchSampler(cached.lengths("mel")[valid_size:], batch_size, drop_last=True)
    collate = LJSpeechCollector()
    return (
        DataLoader(train_set, batch_sampler=buckets, collate_fn=collate),
        DataLoader(valid_set, batch_size=batch_size, shuffle=False, drop_last=False, collate_fn=collate),
    )


def main(cache_path: str) -> None:
    """Shows the shapes of one batch, and what an epoch is padded with."""
    train_loader, _ = create_dataloader(cache_path, valid_size=4, batch_size=8)
    ids, mels, stop_probs = next(iter(train_loader))
    print(f"ids {ids.shape} {ids.dtype}, mels {mels.shape} {mels.dtype}, stop_probs {stop_probs.shape}")
    lengths = Cache.open(cache_path)["train"].lengths("mel")[4:]
    buckets, random = SimilarLengthBatchSampler(lengths, 8), BatchSampler(RandomSampler(lengths), 8)
    print(f"padding: {padding_waste(buckets, lengths):.0%} of an epoch, {padding_waste(random, lengths):.0%} in random")


if __name__ == "__main__":
    main(sys.argv[1])
