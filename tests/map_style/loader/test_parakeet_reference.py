"""The reference's own code, with the imports changed and its slips of the pen mended."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import beam_pipes.transforms.parakeet
from beam_pipes.transforms.parakeet import (
    AudioProcessor,
    DataLoader,
    Dataset,
    English,
    LogMagnitude,
    TransformDataset,
    batch_spec,
    batch_text_id,
    dataset,
)
from examples.speech import synthesize


class LJSpeechMetaData(Dataset):
    def __init__(self, root):
        self.root = Path(root).expanduser()
        wav_dir = self.root / "wavs"
        csv_path = self.root / "metadata.csv"
        records = []
        speaker_name = "ljspeech"
        with open(str(csv_path)) as f:
            for line in f:
                filename, _, normalized_text = line.strip().split("|")
                filename = str(wav_dir / (filename + ".wav"))
                records.append([filename, normalized_text, speaker_name])
        self.records = records

    def __getitem__(self, i):
        return self.records[i]

    def __len__(self):
        return len(self.records)


class Transform:
    def __init__(self):
        self.frontend = English()
        self.processor = AudioProcessor(sample_rate=22050, n_fft=1024, win_length=1024, hop_length=256, f_max=8000)
        self.normalizer = LogMagnitude()

    def forward(self, record):
        fname, text, _ = record
        wav = self.processor.read_wav(fname)
        mel = self.processor.mel_spectrogram(wav)
        mel = self.normalizer.transform(mel)
        phonemes = self.frontend.phoneticize(text)
        ids = self.frontend.numericalize(phonemes)
        stop_probs = np.ones([mel.shape[1]], dtype=np.int64)
        stop_probs[-1] = 2
        return (ids, mel, stop_probs)


class LJSpeechCollector:
    """A simple callable to batch LJSpeech examples."""

    def __init__(self, padding_idx=0, padding_value=0.0):
        self.padding_idx = padding_idx
        self.padding_value = padding_value

    def __call__(self, examples):
        ids = [example[0] for example in examples]
        mels = [example[1] for example in examples]
        stop_probs = [example[2] for example in examples]

        ids = batch_text_id(ids, pad_id=self.padding_idx)
        mels = batch_spec(mels, pad_value=self.padding_value)
        stop_probs = batch_text_id(stop_probs, pad_id=self.padding_idx)
        return ids, np.transpose(mels, [0, 2, 1]), stop_probs


def create_dataloader(source_path, valid_size, batch_size):
    lj = LJSpeechMetaData(source_path)
    transform = Transform()
    lj = TransformDataset(lj, transform)

    valid_set, train_set = dataset.split(lj, valid_size)
    train_loader = DataLoader(
        train_set,
        return_list=False,
        batch_size=batch_size,
        shuffle=True,
        drop_last=True,
        collate_fn=LJSpeechCollector(),
    )
    valid_loader = DataLoader(
        valid_set,
        return_list=False,
        batch_size=batch_size,
        shuffle=False,
        drop_last=False,
        collate_fn=LJSpeechCollector(),
    )
    return train_loader, valid_loader


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    return synthesize(tmp_path_factory.mktemp("speech"), num_clips=9)


def test_the_reference_code_gives_batches(corpus):
    train_loader, valid_loader = create_dataloader(corpus, valid_size=3, batch_size=2)

    for _ in range(2):
        batches = list(train_loader)
        assert 3 == len(batches)
        for ids, mels, stop_probs in batches:
            assert (2, 2, 2) == (ids.shape[0], mels.shape[0], stop_probs.shape[0])
            assert ("int64", "float32", "int64") == (ids.dtype, mels.dtype, stop_probs.dtype)
            assert mels.shape[1:] == (stop_probs.shape[1], 80)
    assert [2, 1] == [len(ids) for ids, _, _ in valid_loader]


def test_the_validation_set_is_the_first_records_in_order(corpus):
    _, valid_loader = create_dataloader(corpus, valid_size=3, batch_size=1)
    meta = LJSpeechMetaData(corpus)
    transform = Transform()

    for record, (ids, mels, _) in zip([meta[0], meta[1], meta[2]], valid_loader, strict=True):
        expected_ids, expected_mel, _ = transform.forward(record)
        np.testing.assert_array_equal([expected_ids], ids)
        np.testing.assert_array_equal([expected_mel.T], mels)


def test_the_facade_offers_only_names_that_the_rooms_define():
    offered = {name: value for name, value in vars(beam_pipes.transforms.parakeet).items() if not name.startswith("_")}

    assert {
        "DataLoader",
        "Dataset",
        "batch_wav",
        "split",
        "dataset",
        "PartialyRandomizedSimilarTimeLengthSampler",
    } < set(offered)
    del offered["ABSENT"]  # what is not there, and what to use
    for name, value in offered.items():
        module = getattr(value, "__module__", getattr(value, "__name__", ""))
        assert module.startswith(("beam_pipes.transforms.", "beam_pipes.map_style")), name


def test_the_loader_is_offered_beside_the_datasets_too():
    from beam_pipes import map_style as datasets

    assert DataLoader is datasets.DataLoader
    with pytest.raises(AttributeError, match="^module 'beam_pipes.map_style' has no attribute 'DataLoder'$"):
        _ = datasets.DataLoder
