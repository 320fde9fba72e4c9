"""Sound: decoding, resampling, spectrograms, phonemes, in NumPy. soundfile reads and writes files, soxr resamples."""

from typing import TYPE_CHECKING

from beam_pipes.transforms.audio.frontends import Chinese as Chinese
from beam_pipes.transforms.audio.frontends import English as English
from beam_pipes.transforms.audio.frontends import EnglishCharacter as EnglishCharacter
from beam_pipes.transforms.audio.frontends import Vocab as Vocab
from beam_pipes.transforms.audio.frontends import read_lexicon as read_lexicon
from beam_pipes.transforms.audio.processor import AudioProcessor as AudioProcessor
from beam_pipes.transforms.audio.processor import LogMagnitude as LogMagnitude
from beam_pipes.transforms.audio.processor import UnitMagnitude as UnitMagnitude
from beam_pipes.transforms.audio.sound_files import read_wav as read_wav
from beam_pipes.transforms.audio.sound_files import write_wav as write_wav
from beam_pipes.transforms.audio.spectra import StftOptions as StftOptions
from beam_pipes.transforms.audio.spectra import hz_to_mel as hz_to_mel
from beam_pipes.transforms.audio.spectra import istft as istft
from beam_pipes.transforms.audio.spectra import mel_filters as mel_filters
from beam_pipes.transforms.audio.spectra import mel_to_hz as mel_to_hz
from beam_pipes.transforms.audio.spectra import resample as resample
from beam_pipes.transforms.audio.spectra import stft as stft

if TYPE_CHECKING:
    from beam_pipes.transforms.manifest_rows import Transcripts as Transcripts


def __getattr__(name: str) -> object:
    if name == "Transcripts":  # on demand, since its module needs this package
        from beam_pipes.transforms import manifest_rows

        return manifest_rows.Transcripts
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
