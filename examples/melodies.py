"""Melodies out of MIDI files, as Magenta's pipelines do it: quantise, extract melodies, encode, partition.

python -m examples.midi_corpus --to .demo/midi
beam-pipes build examples.melodies:declaration --to .demo/melodies
python -m examples.melody_batches .demo/melodies

The stages are in `transforms/midi.py`.
"""

from __future__ import annotations

from beam_pipes.building import Declaration
from beam_pipes.format.messages import SequenceExample
from beam_pipes.sources import FileContent, Files
from beam_pipes.typed import DAGPipeline, Input, Output, RandomPartition
from transforms.midi import EncoderPipeline, MonophonicMelodyExtractor, Quantizer, piece_of


def declaration(midi_files: str = ".demo/midi") -> Declaration:
    """The melodies of a directory of MIDI files, nine of ten pieces to train on; files that are no MIDI are kept."""
    quantizer, extractor = Quantizer(steps_per_quarter=4), MonophonicMelodyExtractor(min_bars=7, min_unique_pitches=5)
    encoder = EncoderPipeline()
    partitioner = RandomPartition(SequenceExample, ["eval_melodies", "training_melodies"], [0.1], key=piece_of)
    dag = {
        quantizer: Input(FileContent),
        extractor: quantizer,
        encoder: extractor,
        partitioner: encoder,
        Output(): partitioner,
    }
    source = Files(midi_files, pattern="**/*.mid")
    return Declaration(name="melodies", source=source, pipeline=DAGPipeline(dag, "Melodies"), on_error="dead_letter")
