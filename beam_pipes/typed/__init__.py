"""Typed pipelines, DAGs of them, and their statistics (the names of Magenta's pipelines).

| word | meaning |
| --- | --- |
| pipeline | a typed step: `input_type`, `output_type`, `name`, `transform` |
| DAG | a dict of `destination: dependency`; `DAGPipeline` runs it as one pipeline |
| key | one named output of a pipeline with a dict output |
| statistic | a named measure reported by a pipeline for each input, merged over all inputs |
"""

from __future__ import annotations

from beam_pipes.engine.statistics import Counter as Counter
from beam_pipes.engine.statistics import Histogram as Histogram
from beam_pipes.engine.statistics import Maximum as Maximum
from beam_pipes.engine.statistics import Statistic as Statistic
from beam_pipes.engine.statistics import log_statistics_list as log_statistics_list
from beam_pipes.engine.statistics import merge_statistics as merge_statistics
from beam_pipes.errors import BadInputOrOutputException as BadInputOrOutputException
from beam_pipes.errors import BadTopologyException as BadTopologyException
from beam_pipes.errors import DuplicateNameException as DuplicateNameException
from beam_pipes.errors import InvalidDAGException as InvalidDAGException
from beam_pipes.errors import InvalidDictionaryOutput as InvalidDictionaryOutput
from beam_pipes.errors import InvalidStatisticsException as InvalidStatisticsException
from beam_pipes.errors import InvalidTransformOutputException as InvalidTransformOutputException
from beam_pipes.errors import InvalidTypeSignatureException as InvalidTypeSignatureException
from beam_pipes.errors import MergeStatisticsException as MergeStatisticsException
from beam_pipes.errors import NotConnectedException as NotConnectedException
from beam_pipes.errors import TooManyCombinationsException as TooManyCombinationsException
from beam_pipes.errors import TypeMismatchException as TypeMismatchException
from beam_pipes.errors import UnequalZipException as UnequalZipException
from beam_pipes.errors import UnknownKeyException as UnknownKeyException
from beam_pipes.extras import names_of as _names_of
from beam_pipes.typed.dag import DAGPipeline as DAGPipeline
from beam_pipes.typed.dag import Input as Input
from beam_pipes.typed.dag import Output as Output
from beam_pipes.typed.function_stage import FunctionStage as FunctionStage
from beam_pipes.typed.function_stage import stage as stage
from beam_pipes.typed.models import load_once as load_once
from beam_pipes.typed.pipeline import Key as Key
from beam_pipes.typed.pipeline import Pipeline as Pipeline
from beam_pipes.typed.pipeline import make_sequence_example as make_sequence_example
from beam_pipes.typed.random_partition import ABSENT as _ABSENT
from beam_pipes.typed.random_partition import MelodyExtractor as MelodyExtractor
from beam_pipes.typed.random_partition import MonophonicMelodyExtractor as MonophonicMelodyExtractor
from beam_pipes.typed.random_partition import Quantizer as Quantizer
from beam_pipes.typed.random_partition import RandomPartition as RandomPartition
from beam_pipes.typed.run_serial import file_iterator as file_iterator
from beam_pipes.typed.run_serial import load_pipeline as load_pipeline
from beam_pipes.typed.run_serial import run_pipeline_serial as run_pipeline_serial
from beam_pipes.typed.run_serial import tf_record_iterator as tf_record_iterator
from beam_pipes.typed.services import Service as Service
from beam_pipes.typed.while_running import count as count
from beam_pipes.typed.while_running import drop as drop
from beam_pipes.typed.while_running import observe as observe

DagInput, DagOutput, PipelineKey = Input, Output, Key  # in Magenta 2
__getattr__ = _names_of(__name__, _ABSENT, "Magenta")
