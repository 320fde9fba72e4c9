"""Kill points: labelled steps of a build at which a test can have the process killed, as losing power would.

`BEAM_PIPES_KILL_AT=shard/renamed` kills the process (SIGKILL) when it reaches that step, `shard/renamed#3` when it does
so for the third time. With the variable unset a step costs one comparison.
"""

from __future__ import annotations

import os
import signal

VARIABLE = "BEAM_PIPES_KILL_AT"

#: Every step, in the order of a build, and what has just happened there.
LABELS = {
    "lock/opened": "the lock file exists, nobody holds it",
    "lock/taken": "the lock is held, its holder is not named yet",
    "lock/named": "the lock names its holder",
    "digests/written": "the digests of input files lie under a temporary name",
    "digests/renamed": "the digests of input files are in place",
    "prepare/swept": "leftovers of dead builds are removed",
    "prepare/recorded": "the parts of the fingerprint lie beside the snapshot",
    "reuse/index-linked": "the index of a reused shard is linked into the new snapshot",
    "reuse/linked": "a reused shard is linked into the new snapshot, its completion is not written",
    "shard/written": "all records of a shard lie under a temporary name",
    "shard/index-renamed": "the index of a shard is in place, the shard is not",
    "shard/renamed": "a shard and its index are in place",
    "shard/dead-letters-renamed": "the dead letters of a shard are in place, its completion is not written",
    "storage/staged": "a file lies durable under its temporary name",
    "storage/renamed": "a file has its final name, the directory is not durable",
    "storage/new-linked": "a file that must not replace another is in place, its temporary name remains",
    "storage/link-staged": "a link to a file of another snapshot has a temporary name",
    "shard/completed": "the completion of a shard is in place",
    "publish/described": "schema and statistics of the snapshot are in place",
    "publish/snapshot-manifest-written": "the snapshot has its manifest, readers see the previous one",
    "publish/current-manifest-replaced": "readers see the new snapshot",
    "build/recorded": "the record of the run is written",
    "lock/unlinked": "the lock file is removed, the lock is still held",
}

#: Steps that builds on an object store have besides: there the lock, staged files and links are other ones.
OBJECT_STORE_LABELS = {
    "lease/taken": "the build lock is held",
    "gcs/put": "a small object is in place",
    "gcs/uploaded": "a large object is in place",
    "gcs/copied": "an object of another snapshot is copied into this one",
    "lease/released": "the build lock is given back",
}

#: Steps that builds of declarations with analyzers have besides, before `prepare/swept`.
ANALYSIS_LABELS = {
    "analysis/content-stored": "an accumulator or a result is in place, its record is not written",
    "analysis/recorded": "the record of an accumulator or a result is in place",
}

_label = ""
_visits_left = 0


def arm(where: str) -> None:
    """Sets the step at which this process is killed: a label, or `label#n` for its n-th visit; empty for none."""
    global _label, _visits_left
    _label, _, visit = where.partition("#")
    _visits_left = int(visit or 1)


def reached(label: str) -> None:
    """Marks a step; kills the process where it is the one that was asked for."""
    global _visits_left
    if label == _label:
        _visits_left -= 1
        if _visits_left == 0:
            os.kill(os.getpid(), signal.SIGKILL)


arm(os.environ.get(VARIABLE, ""))
