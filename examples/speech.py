"""Speech for a text-to-speech model: sound files and transcripts become padded batches of ids and mel spectrograms.

    python -m examples.speech --to .demo/speech

synthesises a small corpus in the layout of LJSpeech (`metadata.csv` and `wavs/`), and loads one batch of it.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from beam_pipes.errors import DatasetError
from beam_pipes.map_style import DataLoader, Dataset, TransformDataset, batch_spec, batch_text_id, split
from beam_pipes.transforms.audio import AudioProcessor, English, LogMagnitude, write_wav

SAMPLE_RATE = 22050
SPEAKER = "ljspeech"

# Record: file (its path or bytes), text, speaker. Example: ids (L,), log mel spectrogram (80, T), stop marks (T,).
Record = list[Any]
Example = tuple[np.ndarray[Any, Any], np.ndarray[Any, Any], np.ndarray[Any, Any]]

WORDS = (
    "the quick brown fox jumps over a lazy dog while seven ships sail on quiet water near an old stone bridge".split()
)


class LJSpeechMetaData(Dataset):
    """The records of `metadata.csv`; no sound is read. It needs nothing but the path of the corpus."""

    def __init__(self, root: str | os.PathLike[str]) -> None:
        self.root = Path(root).expanduser()
        csv_path = self.root / "metadata.csv"
        self.records: list[Record] = []
        with open(csv_path, encoding="utf-8") as lines:
            for number, line in enumerate(lines, start=1):
                fields = line.rstrip("\n").split("|")
                if len(fields) != 3:
                    raise DatasetError(f"{csv_path}:{number}: expected name|text|normalised text, got {line.strip()!r}")
                name, _, normalized_text = fields
                self.records.append([str(self.root / "wavs" / f"{name}.wav"), normalized_text, SPEAKER])

    def __getitem__(self, i: Any) -> Any:
        return self.records[i]

    def __len__(self) -> int:
        return len(self.records)


class Transform:
    """Turns a record into what the model takes: `(ids, mel, stop_probs)`."""

    def __init__(self) -> None:
        self.frontend = English()
        self.processor = AudioProcessor(
            sample_rate=SAMPLE_RATE, n_fft=1024, win_length=1024, hop_length=256, f_max=8000
        )
        self.normalizer = LogMagnitude()

    def __call__(self, record: Record) -> Example:
        file, text, _ = record
        mel = self.normalizer.transform(self.processor.mel_spectrogram(self.processor.read_wav(file)))
        ids = self.frontend.numericalize(self.frontend.phoneticize(text))
        stop_probs = np.ones([mel.shape[1]], dtype=np.int64)
        stop_probs[-1] = 2
        return ids, mel, stop_probs


class LJSpeechCollector:
    """Pads the ids, spectrograms and stop marks of a batch: shapes (B, L), (B, T, 80) and (B, T)."""

    def __init__(self, padding_idx: int = 0, padding_value: float = 0.0) -> None:
        self.padding_idx = padding_idx
        self.padding_value = padding_value

    def __call__(self, examples: Sequence[Example]) -> Example:
        ids = batch_text_id([example[0] for example in examples], pad_id=self.padding_idx)
        mels = batch_spec([example[1] for example in examples], pad_value=self.padding_value)
        stop_probs = batch_text_id([example[2] for example in examples], pad_id=self.padding_idx)
        return ids, np.transpose(mels, [0, 2, 1]), stop_probs


def create_dataloader(
    source_path: str | os.PathLike[str], valid_size: int, batch_size: int, *, num_workers: int = 0
) -> tuple[DataLoader, DataLoader]:
    """Returns the loaders of the training and the validation set; the first `valid_size` records are the latter."""
    examples = TransformDataset(LJSpeechMetaData(source_path), Transform())
    valid_set, train_set = split(examples, valid_size)
    options: dict[str, Any] = {"batch_size": batch_size, "collate_fn": LJSpeechCollector(), "num_workers": num_workers}
    return (
        DataLoader(train_set, shuffle=True, drop_last=True, **options),
        DataLoader(valid_set, shuffle=False, drop_last=False, **options),
    )


def synthesize(root: str | os.PathLike[str], num_clips: int = 24, *, seed: int = 0) -> Path:
    """Writes a corpus in the layout of LJSpeech and returns its directory; the same seed gives the same files.

    A clip of two to nine words has one chord a letter, 40 ms each: nonsense to the ear, but sound whose length
    follows its text.
    """
    root = Path(root)
    (root / "wavs").mkdir(parents=True, exist_ok=True)
    random = np.random.default_rng(seed)
    lines = []
    for number in range(num_clips):
        words = [WORDS[place] for place in random.integers(0, len(WORDS), size=random.integers(2, 10))]
        text = f"{' '.join(words).capitalize()}."
        name = f"SY{number // 100 + 1:03d}-{number % 100:04d}"
        write_wav(root / "wavs" / f"{name}.wav", synthesize_wave(text), SAMPLE_RATE)
        lines.append(f"{name}|{text}|{text.lower()}\n")
    (root / "metadata.csv").write_text("".join(lines), encoding="utf-8")
    return root


def synthesize_wave(text: str) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Returns 40 ms of a chord for each character of `text`, faded in and out; silence for what is no letter."""
    size = round(0.04 * SAMPLE_RATE)
    seconds, fade = np.arange(size) / SAMPLE_RATE, np.hanning(size)
    chords = [np.zeros(size)] * 2
    for character in text.lower():
        pitch = 110.0 * 2.0 ** ((ord(character) - ord("a")) / 12.0)
        overtones = [np.sin(2 * np.pi * pitch * k * seconds) / k for k in (1, 2, 3)]
        chords.append(0.4 * fade * sum(overtones) if character.isalpha() else np.zeros(size))
    return np.concatenate(chords)


def main() -> None:
    """Synthesises a corpus and shows the shapes of one batch."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--to", required=True, metavar="DIR", help="where the corpus is written")
    parser.add_argument("--clips", type=int, default=24, help="how many clips [24]")
    options = parser.parse_args()
    train_loader, valid_loader = create_dataloader(synthesize(options.to, options.clips), valid_size=4, batch_size=8)
    ids, mels, stop_probs = next(iter(train_loader))
    print(f"{len(train_loader)} batches to train on, {len(valid_loader)} to validate with")
    print(f"ids {ids.shape} {ids.dtype}, mels {mels.shape} {mels.dtype}, stop_probs {stop_probs.shape}")


if __name__ == "__main__":
    main()
