"""`view` of a cache on s3:// and az://: the rows of a local one."""

from __future__ import annotations

import json
from pathlib import Path

from view_pages import fetched, served

from beam_pipes.runners import LocalOptions, build
from beam_pipes.view.server import Viewer


def test_rows_records_and_the_build_are_those_of_a_local_cache(text_input: Path, tmp_path: Path, bucket: str) -> None:
    path = f"{bucket}/words"
    for place in (path, str(tmp_path / "words")):
        build("sample_declarations:words", place, options=LocalOptions(workers=1))
    answers = []
    for place in (path, str(tmp_path / "words")):
        with served(Viewer(place)) as page:
            overview = json.loads(fetched(f"{page}api/cache")[2])
            split = overview["splits"][0]["name"]
            rows = fetched(f"{page}api/rows?split={split}&count=50&snapshot={overview['snapshot']}")
            record = fetched(f"{page}api/record?split={split}&row=1")
            status = json.loads(fetched(f"{page}api/status")[2])
            answers.append((rows[0], rows[2], record[0], record[2], overview["snapshots"], status["published"]))
    assert answers[0] == answers[1] and answers[0][0] == answers[0][2] == 200
