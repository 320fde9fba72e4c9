"""What Dataflow is told, and what is refused before anything is sent."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from beam_pipes.errors import DeclarationError
from beam_pipes.runners import BeamOptions, DataflowOptions, build
from beam_pipes.runners.options import without_secrets

GOOD: dict[str, Any] = {
    "project": "my-project",
    "region": "europe-west1",
    "temp_location": "gs://bucket/temp",
    "sdk_container_image": "registry/worker:1",
}


def test_options_reach_beam_under_its_names(tmp_path: Path) -> None:
    (tmp_path / "setup.py").write_text("")
    (tmp_path / "more.tar.gz").write_text("")
    options = DataflowOptions(
        **{**GOOD, "sdk_container_image": None},
        setup_file=str(tmp_path / "setup.py"),
        extra_packages=(str(tmp_path / "more.tar.gz"),),
        staging_location="gs://bucket/staging",
        job_name="books-1",
        machine_type="n2-standard-4",
        num_workers=2,
        max_num_workers=20,
        disk_size_gb=50,
        service_account_email="worker@my-project.iam.gserviceaccount.com",
        use_public_ips=False,
        beam_args=("--experiments=use_runner_v2",),
    )

    assert options.runner == "DataflowRunner"
    assert options.pipeline_args() == (
        "--project=my-project",
        "--region=europe-west1",
        "--temp_location=gs://bucket/temp",
        "--staging_location=gs://bucket/staging",
        f"--setup_file={tmp_path}/setup.py",
        "--job_name=books-1",
        "--machine_type=n2-standard-4",
        "--num_workers=2",
        "--max_num_workers=20",
        "--disk_size_gb=50",
        "--service_account_email=worker@my-project.iam.gserviceaccount.com",
        f"--extra_package={tmp_path}/more.tar.gz",
        "--no_use_public_ips",
        "--experiments=use_runner_v2",
    )


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"project": "My Project"}, "dataflow: project should look like 'my-project', got 'My Project'"),
        ({"region": "europe"}, "dataflow: region should look like 'europe-west1', got 'europe'"),
        ({"temp_location": "/tmp/x"}, r"temp_location should be a directory in a bucket, such as gs://bucket/temp"),
        ({"staging_location": "gs://bucket"}, r"staging_location should be a directory in a bucket.*got 'gs://bucket'"),
        ({"job_name": "Books"}, "job_name should look like 'tokenize-books', got 'Books'"),
        ({"num_workers": 0}, "num_workers should be a number, at least 1, got 0"),
        ({"num_workers": 9, "max_num_workers": 3}, "num_workers=9 is more than max_num_workers=3"),
        ({"sdk_container_image": None}, "give one of them, got neither"),
        ({"setup_file": "setup.py"}, "give one of them, got both"),
        ({"extra_packages": ("none.tar.gz",)}, "there is no file 'none.tar.gz'"),
        ({"sdk_container_image": None, "setup_file": "README.md"}, "Beam wants the setup_file to be called setup.py"),
    ],
)
def test_mistakes_are_named_before_anything_is_sent(change: dict[str, Any], words: str) -> None:
    with pytest.raises(DeclarationError, match=words):
        DataflowOptions(**{**GOOD, **change})


def test_the_command_line_takes_beams_names_and_checks_them() -> None:
    args = ["--project=my-project", "--region=europe-west1", "--temp_location=gs://b/t", "--num_workers=3"]

    options = DataflowOptions.from_args(
        [*args, "--sdk_container_image=i", "--extra_package=setup.py", "--experiments=x"]
    )

    assert (options.project, options.num_workers, options.extra_packages) == ("my-project", 3, ("setup.py",))
    assert options.beam_args == ("--experiments=x",)
    with pytest.raises(DeclarationError, match=r"project, temp_location should be given\. Example: beam-pipes build"):
        DataflowOptions.from_args(["--region=europe-west1"])
    with pytest.raises(DeclarationError, match="num_workers should be a number, at least 1, got 'many'"):
        DataflowOptions.from_args([*args, "--sdk_container_image=i", "--num_workers=many"])


def test_a_local_directory_is_no_place_for_workers_in_the_cloud(text_input: Path, tmp_path: Path) -> None:
    with pytest.raises(DeclarationError, match=r"workers in the cloud cannot see\. Build to gs://"):
        build("sample_declarations:words", tmp_path / "cache", options=DataflowOptions(**GOOD))

    assert not (tmp_path / "cache" / "manifest.json").exists()


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        (["--project=p", "--s3_secret_access_key=abc"], ["--project=p", "--s3_secret_access_key=…"]),
        (["--s3_session_token", "abc", "--region=r"], ["--s3_session_token", "…", "--region=r"]),
        (["--azure_connection_string=AccountKey=abc;x=y"], ["--azure_connection_string=…"]),
        (["--s3_access_key_id=abc", "--verbose"], ["--s3_access_key_id=…", "--verbose"]),
    ],
)
def test_what_is_written_down_of_options_has_no_secrets(given: list[str], kept: list[str]) -> None:
    assert without_secrets(given) == kept
    assert BeamOptions(beam_args=tuple(given)).to_json() == {"runner": "DirectRunner", "beam_args": kept}
