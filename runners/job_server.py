"""Whether a job server of Beam's answers at an endpoint, asked before a job is prepared for it."""

from __future__ import annotations

import importlib
from typing import Any

from beam_pipes.errors import BuildError
from beam_pipes.extras import require

# A job server of Java reads its class path for the first answer; this is for one machine asking another.
ANSWER_SECS = 20.0


def require_job_server(runner: str, endpoint: str, *, start: str, answer_secs: float = ANSWER_SECS) -> None:
    """Asks the server at HOST:PORT which options it takes, as Beam does before each job.

    Args:
        runner: the name of the runner on the command line, for the message.
        endpoint: HOST:PORT.
        start: the command that starts such a server, for the message.
        answer_secs: how long to wait for a server that accepts a connection and does not answer.

    Raises:
        BuildError: nobody listens there, it does not answer, or it is no job server.
    """
    require("apache_beam", purpose=f"the runner {runner}")
    grpc: Any = importlib.import_module("grpc")  # it has no types, and comes with Beam
    from apache_beam.portability.api import beam_job_api_pb2, beam_job_api_pb2_grpc

    with grpc.insecure_channel(endpoint) as channel:
        try:
            stub = beam_job_api_pb2_grpc.JobServiceStub(channel)
            stub.DescribePipelineOptions(beam_job_api_pb2.DescribePipelineOptionsRequest(), timeout=answer_secs)
        except grpc.RpcError as error:
            code = error.code()
            if code == grpc.StatusCode.UNIMPLEMENTED:
                found = "what answers there is no job server of Beam's"
            elif code == grpc.StatusCode.DEADLINE_EXCEEDED:
                found = f"what listens there did not answer within {answer_secs:g} s"
            else:
                found = f"{code.name}: {error.details()}"
            raise BuildError(
                f"{runner}: expected a job server of Beam's at {endpoint}, but {found}. Start one ({start}), or name "
                "the one that runs (--job-endpoint HOST:PORT).",
                endpoint=endpoint,
            ) from error
