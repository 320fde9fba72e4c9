"""Sound: decoding, resampling, spectrograms and phonemes, in NumPy (soundfile only reads and writes files)."""

from transforms.audio.english import English as English
from transforms.audio.english import read_lexicon as read_lexicon
from transforms.audio.mel import hz_to_mel as hz_to_mel
from transforms.audio.mel import mel_filters as mel_filters
from transforms.audio.mel import mel_to_hz as mel_to_hz
from transforms.audio.normalizers import LogMagnitude as LogMagnitude
from transforms.audio.normalizers import UnitMagnitude as UnitMagnitude
from transforms.audio.processor import AudioProcessor as AudioProcessor
from transforms.audio.resampling import resample as resample
from transforms.audio.stft import StftOptions as StftOptions
from transforms.audio.stft import istft as istft
from transforms.audio.stft import stft as stft
from transforms.audio.wave_files import read_wav as read_wav
from transforms.audio.wave_files import write_wav as write_wav
