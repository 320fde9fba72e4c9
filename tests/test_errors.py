"""The exception tree: its builtins, attributes, pickling."""

from __future__ import annotations

import inspect
import pickle

import pytest
from botocore.exceptions import ClientError

from beam_pipes import errors
from beam_pipes.errors import BeamPipesError, StorageForbiddenError
from beam_pipes.storage.s3 import S3Options, S3Storage

CLASSES = [cls for cls in vars(errors).values() if inspect.isclass(cls) and issubclass(cls, BeamPipesError)]


@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.__name__)
class TestEachClass:
    def test_it_can_be_caught_as_a_builtin_of_its_own_kind(self, cls: type[BeamPipesError]) -> None:
        abstract = {"BeamPipesError", "PipelineError"}
        kinds = {base for base in cls.__mro__ if base.__module__ == "builtins"} - {BaseException, Exception, object}
        assert kinds or cls.__name__ in abstract

    def test_an_error_shows_its_message_and_keeps_its_facts(self, cls: type[BeamPipesError]) -> None:
        error = cls("expected a, found b", stage="Tokenize", offset=3)
        assert str(error) == error.message == "expected a, found b"
        assert (error.stage, error.offset, error.nothing_of_the_kind) == ("Tokenize", 3, None)

    def test_it_survives_pickling(self, cls: type[BeamPipesError]) -> None:
        error = cls("expected a, found b", stage="Tokenize", offset=3)
        again = pickle.loads(pickle.dumps(error))
        assert type(again) is cls
        assert (str(again), again.attributes) == (str(error), {"stage": "Tokenize", "offset": 3})

    def test_it_is_documented(self, cls: type[BeamPipesError]) -> None:
        assert cls.__doc__ and cls.__doc__.strip()


@pytest.mark.parametrize("cls", [errors.MissingExtraError, errors.CacheNotFoundError, errors.LoaderWorkerError])
def test_names_that_a_builtin_has_too_are_kept(cls: type[BeamPipesError]) -> None:
    error = cls("m", name="n", path="p", filename="f")
    assert (error.name, error.path, error.filename) == ("n", "p", "f")
    again = pickle.loads(pickle.dumps(error))
    assert (again.name, again.path, again.filename) == ("n", "p", "f")


def test_facts_that_cannot_be_pickled_do_not_hold_back_the_error() -> None:
    class Local:
        pass

    again = pickle.loads(pickle.dumps(errors.TypeMismatchException("m", stage="s", expected=Local)))
    assert (str(again), again.stage, again.expected) == ("m", "s", repr(Local))


def test_private_and_special_names_are_no_facts() -> None:
    with pytest.raises(AttributeError, match="_private"):
        _ = BeamPipesError("m", stage="s")._private
    assert not hasattr(BeamPipesError("m"), "__notes_of_mine__")


def test_the_module_defines_exceptions_and_how_words_are_shown() -> None:
    public = {name for name in vars(errors) if not name.startswith("_")} - {
        "annotations",
        "Any",
        "TypeVar",
        "logger",
        "storable",
        "text_of",
        "visible",
        "without_stop",
    }
    public -= {name for name, value in vars(errors).items() if inspect.ismodule(value)}
    assert public == {cls.__name__ for cls in CLASSES}


@pytest.mark.parametrize(
    ("message", "said"), [("no such file", "no such file. It is a.txt."), ("Why? ", "Why? It is a.txt.")]
)
def test_what_is_added_to_an_error_is_part_of_it_everywhere(message: str, said: str) -> None:
    error = errors.CacheReadError(message, path="a")

    error.add("It is a.txt.", record=7)

    travelled = pickle.loads(pickle.dumps(error))
    assert str(error) == str(travelled) == error.message == error.args[0] == said
    assert (error.path, error.record, travelled.record) == ("a", 7, 7)


def test_what_an_error_is_about_stands_in_front_and_is_a_fact() -> None:
    error = errors.SpecError("expected a list", found=3).about("feature", "ids", expected="list")

    travelled = pickle.loads(pickle.dumps(error))
    assert str(error) == str(travelled) == error.message == error.args[0] == "feature 'ids': expected a list"
    assert type(error) is errors.SpecError
    assert (travelled.feature, travelled.found, travelled.expected) == ("ids", 3, "list")


def test_credentials_that_have_expired_are_called_that() -> None:
    answer = {"Error": {"Code": "ExpiredToken", "Message": "The provided token has expired."}}

    def refused() -> None:
        raise ClientError({**answer, "ResponseMetadata": {"HTTPStatusCode": 400}}, "GetObject")

    with pytest.raises(StorageForbiddenError) as found:
        S3Storage(S3Options()).retrying(refused, "s3://b/f", "read")
    error = found.value

    assert "s3://b/f: cannot read: the credentials have expired (" in str(error)
    assert "Get new ones (aws sso login, or what gave you AWS_SESSION_TOKEN)" in str(error)
