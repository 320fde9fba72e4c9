"""Every exception of beam-pipes, in one tree whose root is `BeamPipesError`; docs/errors.md draws it.

Each class also inherits the builtin a caller would expect to catch. A message says what was expected, what was
found, where, and what to do; the same facts are attributes (`error.stage`, `error.offset`), `None` when unknown.
"""

from __future__ import annotations

import logging
import pickle
import unicodedata
from typing import Any, TypeVar

_E = TypeVar("_E", bound="BeamPipesError")


def text_of(error: BaseException) -> str:
    """`str(error)`; if the exception's own `__str__` fails, a text that says so, because that must not end a build.

    It is `storable`.
    """
    try:
        return storable(str(error))
    except Exception as other:
        return f"(no text: {type(error).__name__}.__str__ raised {type(other).__name__})"


def storable(text: str) -> str:
    """`text` with lone surrogates, which data may contain and text files cannot hold, as escapes: `\\ud800`."""
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode("utf-8")


def without_stop(error: BaseException) -> str:
    """`text_of(error)` without a full stop at its end, for messages that continue:
    `f"{without_stop(error)}. Fix …"`."""
    return text_of(error).rstrip(". ")


def visible(text: str) -> str:
    """`text` with every control character as an escape: ESC becomes the four characters `\\x1b`; line ends stay.

    Use it for all output that may come from data or another cache: terminals obey control characters.
    """
    if text.isprintable():
        return text
    return "".join(
        character if character == "\n" or unicodedata.category(character)[0] != "C" else _escape(character)
        for character in text
    )


def logger(name: str) -> logging.Logger:
    """The logger `name`, with every line made `visible`: names of features, files and metrics come from caches."""
    found = logging.getLogger(name)
    if _as_visible not in found.filters:
        found.addFilter(_as_visible)
    return found


def _as_visible(record: logging.LogRecord) -> bool:
    # A filter on the logger, since the handlers belong to the application.
    record.msg, record.args = visible(record.getMessage()), ()
    return True


def _escape(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")


class BeamPipesError(Exception):
    """Root of all exceptions raised on purpose by beam-pipes.

    Keyword arguments become attributes: `BeamPipesError("…", stage="Tokenize").stage == "Tokenize"`.
    """

    def __init__(self, message: str, **attributes: object) -> None:
        super().__init__(message)
        self.message = message
        self.attributes = attributes
        for name, value in attributes.items():
            if hasattr(type(self), name):  # ImportError already has a `name`, OSError a `filename`
                setattr(self, name, value)

    def __str__(self) -> str:
        return self.message

    def __getattr__(self, name: str) -> Any:
        # Only called when normal lookup fails: facts that the raise site did not know are None.
        # AutoGraph asks exceptions whether they have `ag_error_metadata`, and does not expect None.
        if name.startswith(("_", "ag_")) or name == "attributes":
            raise AttributeError(name)
        return self.attributes.get(name)

    def add(self, words: str, **attributes: object) -> None:
        """Adds a sentence to the message, and its facts to the attributes, for callers with more context.

        `error.add("It is record 7 of split 'train'.", record=7)`
        """
        sentence = self.message.rstrip()
        self.message = f"{sentence}{'' if sentence.endswith(('.', '!', '?')) else '.'} {words}"
        self.args = (self.message,)
        self.attributes.update(attributes)

    def about(self: _E, kind: str, name: object, **attributes: object) -> _E:
        """The error itself, with what it is about at the front of its message and among its attributes.

        `raise SpecError("expected a list").about("feature", "ids")` says `feature 'ids': expected a list`.
        """
        self.message = f"{kind} {name!r}: {self.message}"
        self.args = (self.message,)
        self.attributes.update({kind: name, **attributes})
        return self

    def __reduce__(self) -> tuple[object, ...]:
        return (_rebuild, (type(self), self.message, {name: _portable(v) for name, v in self.attributes.items()}))


def _rebuild(cls: type[BeamPipesError], message: str, attributes: dict[str, object]) -> BeamPipesError:
    return cls(message, **attributes)


def _portable(value: object) -> object:
    """`value`, or its repr if it cannot be pickled: an error must reach the process that reports it."""
    try:
        pickle.dumps(value)
    except Exception:
        return repr(value)
    return value


class MissingExtraError(BeamPipesError, ImportError):
    """An optional dependency is not installed; the message holds the exact command that installs it."""


class PipelineError(BeamPipesError):
    """A typed pipeline, or a DAG of them, is declared or behaves wrongly."""


class InvalidDAGException(PipelineError, ValueError):
    """The DAG dictionary is not well formed."""


class DuplicateNameException(PipelineError, ValueError):
    """Two pipelines of one DAG, or two of its outputs, have the same name."""


class TypeMismatchException(PipelineError, TypeError):
    """The type signatures at the two ends of an edge differ."""


class BadTopologyException(PipelineError, ValueError):
    """The DAG holds a directed cycle."""


class NotConnectedException(PipelineError, ValueError):
    """A pipeline of the DAG has nothing feeding into it, or feeds nothing."""


class BadInputOrOutputException(PipelineError, ValueError):
    """The DAG has no `Input`, no `Output`, or inputs of different types."""


class InvalidDictionaryOutput(PipelineError, ValueError):
    """`Output()` without a dictionary dependency, or `Output(name)` with one."""


class InvalidStatisticsException(PipelineError, TypeError):
    """`get_stats` returned something that is not an iterable of `Statistic`."""


class InvalidTransformOutputException(PipelineError, TypeError):
    """`transform` returned something that does not match `output_type`."""


class InvalidTypeSignatureException(PipelineError, TypeError):
    """A type signature is neither a class nor a one-level dict of name to class."""


class MergeStatisticsException(PipelineError, ValueError):
    """Two statistics cannot be merged."""


class TooManyCombinationsException(PipelineError, ValueError):
    """The cartesian product in front of one unit exceeds the guard for a single input."""


class UnequalZipException(PipelineError, ValueError):
    """A unit with `join="zip"` got lists of different lengths."""


class UnknownKeyException(InvalidDAGException, KeyError):
    """`pipeline[key]` where the pipeline has no output of that name."""


class SpecError(BeamPipesError, ValueError):
    """A feature spec is wrong, or a value does not match its spec."""


class SourceError(BeamPipesError, ValueError):
    """An input cannot be planned or read."""


class InputNotFoundError(SourceError, FileNotFoundError):
    """There is nothing to read: no file, no shard."""


class DeclarationError(BeamPipesError, ValueError):
    """What to build is declared wrongly, or cannot be imported by name."""


class BuildError(BeamPipesError, RuntimeError):
    """A build stopped before it published a snapshot."""


class StageError(BuildError):
    """A record failed in a stage whose `on_error` does not allow it."""


class ServiceError(BuildError):
    """A service that a stage calls fails too often."""


class RecordQuarantinedError(BuildError):
    """A record for which a worker had to be killed; from then on it fails without its stage being called."""


class RecordTimeoutError(RecordQuarantinedError, TimeoutError):
    """A stage worked on a record for longer than `record_timeout_secs`."""


class RecordMemoryError(RecordQuarantinedError, MemoryError):
    """A stage took more than `record_memory_bytes` of memory for a record."""


class RecordCrashError(RecordQuarantinedError):
    """A stage brought its process down while it worked on a record."""


class ReplayError(BuildError):
    """Dead letters cannot be replayed, because more than they would come out differently."""


class TooManyDeadLettersError(BuildError):
    """More records failed than `max_bad` allows."""


class EmptySplitError(BuildError):
    """Nothing is left of the input, or of a split that has records in the published snapshot."""


class ReconciliationError(BuildError):
    """The counts of a stage do not add up: in ≠ out + dropped + dead."""


class TakenDownNotFoundError(BuildError):
    """Records that were taken down are nowhere in the new input: it was not published, or they might be read again."""


class ExpectationError(BuildError):
    """The new snapshot is not as the declaration expects; it was not published."""


class AnalysisError(BuildError):
    """An analysis cannot run, or its result was requested before it ran; `analyzer` names it."""


class WorkerDiedError(BuildError):
    """A worker process ended without reporting a result."""


class JobLostError(BuildError):
    """A job of a runner was lost: something that ran it is gone. Submitting another one may help."""


class WorkerEnvironmentError(BuildError):
    """The workers' environment lacks something that a declaration needs."""


class CodeChangedError(BuildError):
    """The code of stages changed since the published snapshot, and their versions did not; `stages` names them."""


class PlanError(BuildError):
    """A build would fail; `faults` are all the reasons that show before any input is read."""


class StalePlanError(PlanError):
    """A saved plan belongs to another input, declaration or directory than the build."""


class CacheWriteError(BuildError, OSError):
    """The directory of a cache cannot be written: no room left, read-only, or not a directory."""


class CacheBusyError(BuildError):
    """Another build is writing to the same cache directory."""


class CacheError(BeamPipesError, RuntimeError):
    """A cache cannot be opened or read."""


class CacheNotFoundError(CacheError, FileNotFoundError):
    """There is no published snapshot, no such split or no such feature."""


class SplitNotFoundError(CacheNotFoundError, KeyError):
    """The published snapshot has no split of this name; the message lists those that it has."""


class TaskNotCachedError(CacheNotFoundError, AssertionError):
    """No global cache directory has a finished cache of the task."""


class CacheReadError(CacheError, OSError):
    """A file or directory cannot be read: permission is missing, or the file system fails."""


class UnsupportedFormatError(CacheError):
    """A cache was written in a format version this library does not know."""


class StaleCacheError(CacheError):
    """A cache was written by another version of its declaration."""


class UnknownRecordError(CacheError, LookupError):
    """No source record has this id; the message names the nearest ones."""


class RecordRemovedError(CacheError, LookupError):
    """The requested record was taken down, or may have been."""


class SignatureError(CacheError, PermissionError):
    """A snapshot that is not signed by a trusted key, or not the one that was signed."""


class CorruptCacheError(CacheError, ValueError):
    """Bytes in a cache are not what was written."""


class CorruptManifestError(CorruptCacheError):
    """The manifest cannot be parsed, or contradicts itself or the files it names."""


class CorruptIndexError(CorruptCacheError):
    """An index sidecar is damaged, or does not fit its shard."""


class CorruptTakedownError(CorruptCacheError):
    """The file of takedowns is damaged: nothing is read without it."""


class CorruptRecordError(CorruptCacheError):
    """A record's length, crc or payload is damaged."""


class StorageError(BeamPipesError, OSError):
    """An object store refused a request, or there are no credentials for it."""


class BucketNotFoundError(StorageError):
    """There is no such bucket."""


class StorageForbiddenError(StorageError, PermissionError):
    """The account has no permission for the request."""


class ChangedMeanwhileError(StorageError):
    """Another process changed the object first: a precondition does not hold."""


class StorageUnavailableError(StorageError, TimeoutError):
    """An object store did not answer, or only with transient failures, until the deadline."""


class OutputError(BeamPipesError, OSError):
    """A named output file or directory cannot be written: a report, an export, a table."""


class LoaderError(BeamPipesError, ValueError):
    """A loader is configured wrongly."""


class StateMismatchError(LoaderError):
    """A loader state belongs to another manifest, seed, order version or plan."""


class LoaderWorkerError(LoaderError, RuntimeError):
    """A worker process of a loader died, hung or could not be started."""


class TransformError(LoaderError, RuntimeError):
    """The `transform` of a loader failed on a batch, with its error as cause; never a `StopIteration`."""


class UnboundedLoaderError(LoaderError, TypeError):
    """A loader without an end, or with an unknown end, has no length."""


class DatasetError(BeamPipesError, ValueError):
    """A dataset, sampler or batch function is used wrongly."""


class ExampleError(DatasetError, RuntimeError):
    """User code failed on one example: `index` says which, `__cause__` is what it raised."""


class ExampleIndexError(DatasetError, IndexError):
    """An index lies outside a dataset."""


class GraphError(BeamPipesError, ValueError, RuntimeError):
    """A graph of operators is declared or used wrongly; `where` is the user's line. DALI raises `RuntimeError`."""


class OperatorArgumentError(GraphError, TypeError):
    """An operator does not know an argument, lacks one, or cannot take the value it was given."""


class InferenceError(GraphError, TypeError):
    """An operator cannot take the dtype, rank or layout of its input."""


class PlacementError(GraphError):
    """A data node feeds an earlier place, or an operator is placed where it cannot run."""


class ConditionError(GraphError, TypeError):
    """A condition is not a 0-d number, or the branches of a condition give different results."""


class OperatorError(GraphError):
    """An operator failed on a sample: `operator`, `record`, `where`; `__cause__` is what it raised."""


class ExportError(BeamPipesError, ValueError):
    """A cache cannot be exported as asked: the format, the target, or what the format cannot hold."""


class ConversionError(BeamPipesError, TypeError):
    """A value cannot be handed to another framework without changing it."""


class TaskError(BeamPipesError, ValueError):
    """A task, mixture, feature, vocabulary or converter is declared wrongly."""


class UnknownNameError(TaskError, KeyError):
    """A registry does not know a name; the message lists the nearest ones."""


class WrongConverterError(TaskError, TypeError):
    """A feature converter was expected, not another object."""


class NotANameError(TaskError, AssertionError):
    """The name of a task or mixture is not text."""


class MisplacedStepError(TaskError, RuntimeError):
    """A marker among preprocessors was called like a preprocessor."""


class IncompleteConverterError(TaskError, TypeError):
    """A feature converter overrides no method that converts."""


class EvaluationError(TaskError):
    """An evaluation cannot be set up, a model function returned something else, or a metric failed."""
