"""`view` of a cache on s3:// and az://: the rows of a local one."""

from __future__ import annotations

from pathlib import Path

from view_pages import answers

from beam_pipes.runners import LocalOptions, build


def test_rows_records_and_the_build_are_those_of_a_local_cache(text_input: Path, tmp_path: Path, bucket: str) -> None:
    places = (f"{bucket}/words", str(tmp_path / "words"))
    for place in places:
        build("sample_declarations:words", place, options=LocalOptions(workers=1))

    assert answers(places[0]) == answers(places[1])
