"""Names of `beam_pipes.cache` whose home is elsewhere by now."""

from __future__ import annotations


def test_messages_are_importable_from_the_cache() -> None:
    from beam_pipes.cache.messages import Example, SequenceExample
    from beam_pipes.format import messages

    assert (Example, SequenceExample) == (messages.Example, messages.SequenceExample)


def test_storage_is_importable_from_the_cache() -> None:
    from beam_pipes.cache.storage import LocalStorage
    from beam_pipes.storage import local

    assert LocalStorage is local.LocalStorage
