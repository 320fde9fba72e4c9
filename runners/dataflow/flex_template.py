"""What a Flex Template runs: plans the build of its parameters, and writes the job that Dataflow then starts.

Dataflow's launcher runs this file in the image of the template. It passes the parameters as options, some of Beam's
(`--project`, `--region`, `--temp_location`, `--job_name`), and `--template_location`: where it expects the job.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from beam_pipes.errors import BeamPipesError
from beam_pipes.runners import DataflowOptions, build


def main(args: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--declaration", required=True, help="package.module:name of a Declaration")
    parser.add_argument("--to", required=True, help="cache directory, gs://…")
    parser.add_argument("--runner", help="the launcher names Dataflow's")
    known, beam_args = parser.parse_known_args(args)
    try:
        options = DataflowOptions.from_args(beam_args)
        result = build(known.declaration, known.to, options=options)
    except BeamPipesError as error:
        print(f"beam-pipes: {error}", file=sys.stderr)
        return 1
    print(f"{result.template}: builds snapshot {result.snapshot} of {known.to}, {result.num_shards} source shards.")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
