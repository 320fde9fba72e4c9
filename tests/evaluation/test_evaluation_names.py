"""The names of the room: each loads, and asking for them loads no framework."""

from __future__ import annotations

import pytest

from beam_pipes import evaluation


def test_every_public_name_loads():
    assert [name for name in evaluation.__all__ if getattr(evaluation, name, None) is None] == []
    assert dir(evaluation) == sorted(evaluation.__all__)


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'Evalutor'"):
        evaluation.Evalutor  # noqa: B018
