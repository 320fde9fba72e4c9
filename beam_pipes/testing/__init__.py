"""Chaos for declarations of your own: is what a build writes a function of its input and its declaration alone?

| word | meaning |
| --- | --- |
| sample | records of the real input, some of each of a few source shards |
| trial | one way of running a stage over the sample that must not change what it gives |
| finding | what a trial has shown to be wrong with a stage, in words and with a record |
| verdict | all findings; without any, the declaration is robust |

Every stage is tried alone, on inputs that were recorded once, so a finding names the stage that is at fault and not one
behind it.
"""

from __future__ import annotations

from beam_pipes.testing.check import assert_robust as assert_robust
from beam_pipes.testing.check import check_declaration as check_declaration
from beam_pipes.testing.trial_process import trial_processes as trial_processes
from beam_pipes.testing.values import KINDS as KINDS
from beam_pipes.testing.values import Finding as Finding
from beam_pipes.testing.values import Verdict as Verdict
