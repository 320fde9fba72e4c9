"""What Dataflow is told, and what is refused before anything is sent."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import sample_declarations

from beam_pipes.building.references import DeclarationHandle
from beam_pipes.errors import DeclarationError
from beam_pipes.runners import BeamOptions, DataflowOptions, PortableOptions, build
from beam_pipes.runners.beam_job import BeamRunner
from beam_pipes.runners.options import without_secrets
from beam_pipes.runners.progress import Counts, Silent

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
        ({"template_location": "/tmp/t"}, "template_location should be a file in a bucket, such as gs://bucket/temp"),
        ({"template_location": "gs://b/t", "detach": True}, "there is nothing for detach or attempts to do"),
        ({"template_location": "gs://b/t", "attempts": 3}, "there is nothing for detach or attempts to do"),
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
        DataflowOptions.from_args([*args[:3], "--sdk_container_image=i", "--num_workers=many"])
    with pytest.raises(DeclarationError, match="num_workers is given twice: 3 and '4'"):
        DataflowOptions.from_args([*args, "--num_workers=4"])


@pytest.mark.parametrize(
    ("name", "base"),
    [
        ("My books, 2nd", "my-books-2nd"),
        ("2nd books", "cache-2nd-books"),
        ("tokens_" * 20, "tokens-tokens-tokens-tokens-tokens-t"),
        ("книги", "cache"),
    ],
)
def test_jobs_are_named_and_labelled_by_their_declaration(name: str, base: str) -> None:
    options = DataflowOptions(**GOOD, beam_args=("--labels=beam-pipes-declaration=mine",))

    first, second = (options.named(name, "3f9a5b21c04d77e6") for _ in range(2))

    assert re.fullmatch(f"{base}-3f9a5b21-[0-9a-f]{{8}}", first.job_name or "")
    assert first.job_name != second.job_name
    assert DataflowOptions(**GOOD, job_name=first.job_name), "a name that Dataflow takes"
    assert re.fullmatch(f"{base}-analysis-[0-9a-f]{{8}}", options.named(name, None).job_name or "")
    assert DataflowOptions(**GOOD, job_name="books").named(name, "3f9a5b21").job_name == "books"
    assert first.beam_args == (
        f"--labels=beam-pipes-declaration={base}",
        "--labels=beam-pipes-snapshot=3f9a5b21c04d77e6",
        "--labels=beam-pipes-declaration=mine",
    ), "the last one of a name counts"


def test_a_job_server_shows_the_declaration_too() -> None:
    options = PortableOptions(job_endpoint="localhost:8073")

    assert options.named("My books", "3f9a5b21c04d77e6").job_name == "my-books-3f9a5b21"
    assert BeamOptions().named("My books", "3f9a5b21c04d77e6") == BeamOptions()


def test_a_template_does_not_hold_an_analysis(text_input: Path) -> None:
    options = DataflowOptions(**GOOD, template_location="gs://bucket/template")
    handle = DeclarationHandle(sample_declarations.words(), "sample_declarations:words")

    with pytest.raises(
        DeclarationError, match=r"a template holds one job, and the analyzers of 'words' need one before"
    ):
        BeamRunner(options).analyse(
            handle, "gs://bucket/cache", [], counts=Counts(num_shards=0, stages=[]), progress=Silent()
        )


def test_a_local_directory_is_not_a_place_for_workers_in_the_cloud(text_input: Path, tmp_path: Path) -> None:
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


def test_options_may_stand_beside_their_values() -> None:
    given = ["--project", "my-project", "--region=europe-west1", "--no_auth", "--temp_location", "gs://b/temp"]
    given += ["--sdk_container_image", "i", "--experiments", "x", "--experiments=y", "--num_workers", "3"]

    options = DataflowOptions.from_args(given)

    assert (options.project, options.temp_location, options.num_workers) == ("my-project", "gs://b/temp", 3)
    assert options.beam_args == ("--no_auth", "--experiments=x", "--experiments=y")
    portable = PortableOptions.from_args(["--job_endpoint", "localhost:8073", "--parallelism", "2"])
    assert (portable.job_endpoint, portable.parallelism) == ("localhost:8073", 2)
