"""For people: the page about a snapshot, and the differences between two.

Everything here reads a published cache (manifest, index, a few records, and the files beside the manifest) and changes
nothing.
"""

from __future__ import annotations

from beam_pipes.report.blame import Blame as Blame
from beam_pipes.report.blame import BlamedRow as BlamedRow
from beam_pipes.report.blame import blame as blame
from beam_pipes.report.blame import blame_html as blame_html
from beam_pipes.report.blame import never_falling as never_falling
from beam_pipes.report.difference import SnapshotDifference as SnapshotDifference
from beam_pipes.report.difference import diff_caches as diff_caches
from beam_pipes.report.forgetting import Forgetting as Forgetting
from beam_pipes.report.forgetting import forgetting as forgetting
from beam_pipes.report.language import Language as Language
from beam_pipes.report.language import language_of as language_of
from beam_pipes.report.page import REPORT as REPORT
from beam_pipes.report.page import cache_directories as cache_directories
from beam_pipes.report.page import loader_html as loader_html
from beam_pipes.report.page import overview_html as overview_html
from beam_pipes.report.page import report_html as report_html
from beam_pipes.report.page import write_overview as write_overview
from beam_pipes.report.page import write_report as write_report
