"""Slurm on loopback: a controller and one node, in the foreground, as Debian packages them."""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

from beam_workers import wait_for
from gcs_emulator import free_port

# Authentication by nothing: everything is of one user, on loopback.
CONFIGURATION = """
ClusterName=tests
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={controller_port}
SlurmdPort={node_port}
AuthType=auth/none
CredType=cred/none
SlurmUser={user}
SlurmdUser={user}
StateSaveLocation={directory}
SlurmdSpoolDir={directory}/node
SlurmctldPidFile={directory}/controller.pid
SlurmdPidFile={directory}/node.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SwitchType=switch/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerParameters=sched_min_interval=100000,batch_sched_delay=0
ReturnToService=2
KillWait=2
SlurmdParameters=config_overrides
NodeName={host} NodeAddr=127.0.0.1 CPUs=8 CoresPerSocket=8 State=UNKNOWN
PartitionName=all Nodes={host} Default=YES State=UP
"""

_SBIN = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/sbin"])


def _program(name: str) -> str:
    found = shutil.which(name, path=_SBIN)
    assert found is not None, f"the tests need {name}: `make slurm` installs it"
    return found


@contextlib.contextmanager
def slurm_cluster(directory: Path) -> Iterator[Path]:
    """The file to be named by SLURM_CONF."""
    configuration = directory / "slurm.conf"
    (directory / "node").mkdir()
    configuration.write_text(
        CONFIGURATION.format(
            host=socket.gethostname(),
            controller_port=free_port(),
            node_port=free_port(),
            user=pwd.getpwuid(os.getuid()).pw_name,
            directory=directory,
        )
    )
    environment = {**os.environ, "SLURM_CONF": str(configuration)}
    with contextlib.ExitStack() as stack:
        for name in ("slurmctld", "slurmd"):
            log = stack.enter_context((directory / f"{name}.log").open("wb"))
            server = subprocess.Popen([_program(name), "-D"], stdout=log, stderr=log, env=environment)
            stack.callback(server.wait)
            stack.callback(server.terminate)

        def is_up() -> bool:
            asked = [_program("sinfo"), "--noheader", "--format=%t"]
            return "idle" in subprocess.run(asked, env=environment, capture_output=True, text=True, check=False).stdout

        wait_for(is_up, what="Slurm's node is idle")
        yield configuration
        subprocess.run([_program("scancel"), f"--user={os.getuid()}"], env=environment, check=False)
