from __future__ import annotations

import pytest
from eval_tasks_for_tests import RecordingLogger


@pytest.fixture
def recorded():
    """What `RecordingLogger` was given in this test."""
    RecordingLogger.calls = []
    return RecordingLogger.calls
