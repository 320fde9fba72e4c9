"""The speech example, end to end on files that it synthesises."""

from __future__ import annotations

import re
import shutil
import sys

import numpy as np
import pytest

from beam_pipes.errors import DatasetError, ExampleError
from beam_pipes.map_style import DataLoader, SimilarLengthBatchSampler, padding_waste
from beam_pipes.runners import LocalOptions, build
from examples import speech, speech_cache


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    return speech.synthesize(tmp_path_factory.mktemp("speech"), num_clips=14)


def test_the_same_seed_synthesises_the_same_files(corpus, tmp_path):
    again = speech.synthesize(tmp_path / "again", num_clips=14)
    other = speech.synthesize(tmp_path / "other", num_clips=14, seed=1)

    files = sorted(path.relative_to(corpus) for path in corpus.rglob("*.*"))
    assert 15 == len(files)
    assert [(corpus / file).read_bytes() for file in files] == [(again / file).read_bytes() for file in files]
    assert (corpus / "metadata.csv").read_text() != (other / "metadata.csv").read_text()


def test_metadata_holds_file_text_and_speaker_and_reads_no_sound(corpus):
    meta = speech.LJSpeechMetaData(corpus)

    assert 14 == len(meta)
    assert [str(corpus / "wavs" / "SY001-0000.wav"), meta[0][1], "ljspeech"] == meta[0]
    assert re.fullmatch(r"[a-z ]+\.", meta[0][1])


def test_a_record_becomes_ids_a_mel_spectrogram_and_stop_marks(corpus):
    record = speech.LJSpeechMetaData(corpus)[0]

    ids, mel, stop_probs = speech.Transform()(record)

    samples = len(speech.synthesize_wave(record[1]))
    assert (80, 1 + samples // 256) == mel.shape
    assert [1] * (mel.shape[1] - 1) + [2] == stop_probs.tolist()
    assert (2, 3) == (ids[0], ids[-1])
    assert -11.6 < mel.min() < -10 < 0 < mel.max()


@pytest.mark.parametrize("num_workers", [0, 2])
def test_the_loaders_give_padded_batches_of_every_record(corpus, num_workers):
    train_loader, valid_loader = speech.create_dataloader(corpus, 4, 3, num_workers=num_workers)

    train, valid = list(train_loader), list(valid_loader)

    assert (3, 2) == (len(train), len(valid))  # ten examples in threes, the last one dropped; four in threes
    for ids, mels, stop_probs in [*train, *valid]:
        assert ids.shape[0] == mels.shape[0] == stop_probs.shape[0]
        assert (80, stop_probs.shape[1]) == (mels.shape[2], mels.shape[1])
        frames = (stop_probs > 0).sum(axis=1)
        assert stop_probs.shape[1] == frames.max()
        for row, length in enumerate(frames):
            assert 2 == stop_probs[row, length - 1]
            assert 0 == np.abs(mels[row, length:]).max(initial=0)
            assert np.abs(mels[row, :length]).min(axis=1).max() > 0
    meta = speech.LJSpeechMetaData(corpus)
    np.testing.assert_array_equal(speech.Transform()(meta[3])[1].T, valid[1][1][0])


def test_epochs_differ_and_repeat(corpus):
    one, _ = speech.create_dataloader(corpus, 4, 3)
    other, _ = speech.create_dataloader(corpus, 4, 3, num_workers=2)

    first, second = ([mels for _, mels, _ in one] for _ in range(2))

    assert not all(np.array_equal(a, b) for a, b in zip(first, second, strict=True))
    for ours, theirs in zip(first + second, [mels for _ in range(2) for _, mels, _ in other], strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_sorting_by_metadata_saves_padding(corpus):
    meta = speech.LJSpeechMetaData(corpus)
    lengths = [len(text) for _, text, _ in meta]
    buckets = SimilarLengthBatchSampler(lengths, 3)

    loader = DataLoader(
        speech.TransformDataset(meta, speech.Transform()), batch_sampler=buckets, collate_fn=speech.LJSpeechCollector()
    )

    assert 14 == sum(len(ids) for ids, _, _ in loader)
    assert padding_waste(buckets, lengths) < 0.5 * padding_waste([range(0, 14)], lengths)


def test_a_missing_file_is_named_with_its_record(corpus, tmp_path):
    (tmp_path / "metadata.csv").write_text("gone|A.|a.\n")

    with pytest.raises(ExampleError, match=r"^loading example 0 failed: .*cannot decode sound from .*gone\.wav"):
        list(speech.create_dataloader(tmp_path, 1, 1)[1])


def test_a_line_that_is_not_a_record_is_named(tmp_path):
    (tmp_path / "metadata.csv").write_text("a|A.|a.\nbroken\n")

    words = r"metadata\.csv:2: expected name\|text\|normalised text, got 'broken'$"
    with pytest.raises(DatasetError, match=words):
        speech.LJSpeechMetaData(tmp_path)


def test_the_command_line_shows_one_batch(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["speech", "--to", str(tmp_path), "--clips", "13"])

    speech.main()

    printed = capsys.readouterr().out
    assert printed.startswith("1 batches to train on, 1 to validate with\nids (8, ")
    assert re.search(r"mels \(8, \d+, 80\) float32, stop_probs \(8, \d+\)", printed)


def test_the_cached_corpus_gives_the_same_batches_as_the_sound_files(corpus, tmp_path):
    build(speech_cache.declaration(str(corpus)), tmp_path / "cache", options=LocalOptions(workers=1))

    cached_train, cached_valid = speech_cache.create_dataloader(str(tmp_path / "cache"), 4, 3)
    train, valid = speech.create_dataloader(corpus, 4, 3)

    assert (len(cached_train), len(cached_valid)) == (len(train), len(valid))
    for cached, direct in zip(cached_valid, valid, strict=True):
        for one, other in zip(cached, direct, strict=True):
            np.testing.assert_array_equal(one, other)


def test_a_clip_without_a_transcript_is_dropped_with_its_reason(corpus, tmp_path):
    shutil.copytree(corpus, tmp_path / "corpus")
    shutil.copy(corpus / "wavs" / "SY001-0000.wav", tmp_path / "corpus" / "wavs" / "stray.wav")

    result = build(
        speech_cache.declaration(str(tmp_path / "corpus")), tmp_path / "cache", options=LocalOptions(workers=1)
    )

    assert {"no_transcript": 1} == result.account.units["SpeechFeatures"].dropped
    assert 14 == result.account.written
