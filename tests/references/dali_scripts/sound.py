"""From waves to spectra, as DALI's tutorial of audio has it."""

import numpy as np
import nvidia.dali.fn as fn
import nvidia.dali.types as types
from nvidia.dali import pipeline_def

found = {}
audio_files = "data/audio"
batch_size = 2


@pipeline_def
def audio_decoder_pipe():
    encoded, _ = fn.readers.file(file_root=audio_files)
    audio, sr = fn.decoders.audio(encoded, dtype=types.INT16)
    return audio, sr


pipe = audio_decoder_pipe(batch_size=batch_size, num_threads=1, device_id=None)
pipe.build()
cpu_output = pipe.run()
found["audio"] = [cpu_output[0].at(index) for index in range(batch_size)]
found["rate"] = [cpu_output[1].at(0), cpu_output[1].as_array(), cpu_output[1].shape()]
found["layout"] = cpu_output[0].layout()


@pipeline_def
def downmixed(rate):
    encoded, labels = fn.readers.file(file_root=audio_files)
    audio, sr = fn.decoders.audio(encoded, dtype=types.FLOAT, downmix=True, sample_rate=rate)
    return audio, sr, labels


pipe = downmixed(4000, batch_size=batch_size, num_threads=1, device_id=None)
pipe.build()
audio, sr, labels = pipe.run()
found["downmixed"] = [audio.at(index) for index in range(batch_size)]
found["downmixed rate"] = [sr.as_array(), labels.as_array(), audio.layout()]

n_fft = 256
hop_length = n_fft // 4


@pipeline_def
def spectrogram_pipe(nfft, window_length, window_step, device="cpu"):
    audio = types.Constant(device=device, value=np.load("data/audio.npy"))
    spectrogram = fn.spectrogram(audio, device=device, nfft=nfft, window_length=window_length, window_step=window_step)
    return spectrogram


pipe = spectrogram_pipe(
    device="cpu", batch_size=1, num_threads=1, device_id=None, nfft=n_fft, window_length=n_fft, window_step=hop_length
)
pipe.build()
outputs = pipe.run()
found["spectrogram"] = outputs[0].at(0)
found["spectrogram layout"] = outputs[0].layout()


@pipeline_def
def mel_spectrogram_pipe(nfft, window_length, window_step):
    audio = types.Constant(device="cpu", value=np.load("data/audio.npy"))
    spectrogram = fn.spectrogram(audio, nfft=nfft, window_length=window_length, window_step=window_step)
    mel_spectrogram = fn.mel_filter_bank(spectrogram, sample_rate=8000, nfilter=20, freq_high=4000.0)
    mel_spectrogram_dB = fn.to_decibels(mel_spectrogram, multiplier=10.0, cutoff_db=-80)
    mfccs = fn.mfcc(mel_spectrogram_dB, axis=0, dct_type=2, n_mfcc=10)
    return mel_spectrogram, mel_spectrogram_dB, mfccs


pipe = mel_spectrogram_pipe(
    batch_size=1, num_threads=1, device_id=None, nfft=n_fft, window_length=n_fft, window_step=hop_length
)
pipe.build()
for name, output in zip(("mel", "decibels", "mfcc"), pipe.run(), strict=True):
    found[name] = output.at(0)
    found[f"{name} layout"] = output.layout()


@pipeline_def(seed=3)
def speech(nfeatures=16):
    encoded, labels = fn.readers.file(file_root=audio_files, name="Reader")
    audio, sr = fn.decoders.audio(encoded, dtype=types.FLOAT, downmix=True)
    begin, length = fn.nonsilent_region(audio, cutoff_db=-30.0, window_length=64)
    trimmed = fn.slice(audio, begin, length, axes=[0])
    preemph = fn.preemphasis_filter(trimmed, preemph_coeff=0.97)
    spec = fn.spectrogram(preemph, nfft=256, window_length=160, window_step=80, center_windows=True)
    mel = fn.mel_filter_bank(spec, sample_rate=8000, nfilter=nfeatures)
    log_features = fn.to_decibels(mel + 1e-20, multiplier=float(np.log(10)), reference=1.0, cutoff_db=-80)
    log_features_len = fn.slice(log_features.shape(), 1, 1, axes=(0,))
    normalized = fn.normalize(log_features, axes=[1])
    padded = fn.pad(normalized, fill_value=0, align=8, axes=[1])
    noisy = audio + fn.random.normal(audio, stddev=0.001)
    return padded, log_features_len, begin, length, noisy - audio


pipe = speech(batch_size=batch_size, num_threads=1, device_id=None)
pipe.build()
padded, lengths, begin, length, noise = pipe.run()
found["features"] = padded.as_array()
found["features lengths"] = [lengths.as_array(), begin.as_array(), length.as_array()]
found["noise"] = [[one.shape, one.dtype.name, 0.0005 < one.std() < 0.002] for one in map(noise.at, range(batch_size))]
