"""What exceptions of the services' clients mean: the table names classes that there are."""

from __future__ import annotations

import importlib

import pytest

from beam_pipes.storage.requests import EXCEPTIONS, REFUSALS, Kind
from beam_pipes.storage.s3 import S3Options, S3Storage


@pytest.mark.parametrize("name", sorted(EXCEPTIONS))
def test_the_table_names_exceptions_by_the_module_that_they_say_they_are_of(name: str) -> None:
    module, _, cls = name.rpartition(".")

    found = getattr(importlib.import_module(module), cls)

    assert issubclass(found, BaseException) and (found.__module__, found.__qualname__) == (module, cls)


def test_the_nearest_base_counts_and_what_nobody_names_is_raised_as_it_is() -> None:
    storage = S3Storage(S3Options())

    assert storage.kind_of(BrokenPipeError(), "s3://b/f") is Kind.AGAIN
    assert storage.kind_of(ZeroDivisionError(), "s3://b/f") is None
    with pytest.raises(ZeroDivisionError):
        storage.retrying(lambda: 1 / 0, "s3://b/f", "read")


@pytest.mark.parametrize("kind", [kind for kind in Kind if kind is not Kind.AGAIN])
def test_every_kind_has_words_at_every_service(kind: Kind) -> None:
    from beam_pipes.storage.azure import AzureStorage
    from beam_pipes.storage.gcs import GcsStorage

    for service in (GcsStorage, S3Storage, AzureStorage):
        made = service(service.OPTIONS(anonymous=True)).refusal(
            ValueError("{odd}"), kind, f"{service.SCHEME}b/f", "read"
        )
        assert "b/f" in str(made) or "there are no credentials" in str(made)
    assert REFUSALS[Kind.REFUSED].text.format(path="p", doing="read", said="s")
