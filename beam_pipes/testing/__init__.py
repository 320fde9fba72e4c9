"""Chaos tests for your declarations: does a build's output depend only on its input and its declaration?

| word | meaning |
| --- | --- |
| sample | records of the real input, some from each of a few source shards |
| trial | one way of running a stage over the sample that must not change its output |
| finding | a fault of a stage that a trial has shown, in words and with a record |
| verdict | all findings; if there are none, the declaration is robust |

Every stage is tried alone, on inputs that were recorded once, so a finding names the stage at fault and not one after
it.
"""

from __future__ import annotations

from beam_pipes.testing.check import assert_robust as assert_robust
from beam_pipes.testing.check import check_declaration as check_declaration
from beam_pipes.testing.trial_process import trial_processes as trial_processes
from beam_pipes.testing.values import KINDS as KINDS
from beam_pipes.testing.values import Finding as Finding
from beam_pipes.testing.values import Verdict as Verdict
