"""What Azure has and other services have not: accounts in paths, SAS tokens, blocks that are dropped, leases."""

from __future__ import annotations

import base64
import datetime
import hashlib
import io
import socket

import pytest
from azure.storage.blob import BlobLeaseClient, generate_account_sas
from etag_stores import ACCOUNT, KEY, AzureStore, running
from fault_proxy import FLIP, FaultProxy
from object_stores import check_files, upload

from beam_pipes.cache import storage_for
from beam_pipes.errors import StorageError, StorageForbiddenError
from beam_pipes.sources import TextLines
from beam_pipes.storage.azure import AzureOptions, AzureStorage

pytestmark = pytest.mark.azure

MIB = 1 << 20
CONNECTION = "AZURE_STORAGE_CONNECTION_STRING"


@pytest.fixture(scope="module", name="store")
def one_store():
    with running("azure") as store:
        yield store


def stay_at(url, storage, monkeypatch):
    """Makes a storage go to the server itself, whatever the environment says later."""
    account = storage._account("az://any/f")
    assert account.url.startswith(url)
    monkeypatch.setattr(storage, "_account", lambda path: account)


def test_paths_may_name_their_account_as_beam_does(storage, bucket, store, monkeypatch):
    container = bucket.removeprefix("az://")
    there = f"azfs://{ACCOUNT}/{container}/d"
    storage.replace(f"{bucket}/d/a.txt", b"one\n")
    storage_for(there).replace(f"{there}/sub/b.txt", b"two\n")

    assert storage.read_bytes(f"{bucket}/d/sub/b.txt") == b"two\n"
    assert storage_for(there).list(there) == ["a.txt", "sub"]
    assert sorted(storage_for(there).tree(there)) == ["a.txt", "sub/b.txt"]
    shards = TextLines(there).plan(target_shard_bytes=100).shards
    assert [part.file for shard in shards for part in shard.slices] == ["a.txt", "sub/b.txt"]
    with pytest.raises(StorageError, match="expected paths of the account 'devstoreaccount1', .* got one of 'other'"):
        storage.read_bytes(f"azfs://other/{container}/f")
    for path in ("azfs://account", "az:///f", "azfs:///container/f"):
        with pytest.raises(StorageError, match="expected a path az://container/directory or azfs://account/container/"):
            storage.read_bytes(path)
    monkeypatch.setenv(CONNECTION, "nonsense")
    with pytest.raises(
        StorageError, match="AZURE_STORAGE_CONNECTION_STRING cannot be used: Connection string is either"
    ):
        storage.read_bytes(f"{bucket}/f")
    monkeypatch.delenv(CONNECTION)
    with pytest.raises(StorageError, match="do not name their storage account.* Set AZURE_STORAGE_ACCOUNT or AZURE_S"):
        storage.read_bytes(f"{bucket}/f")


def test_an_account_that_is_not_there_is_reported_at_once(bucket, monkeypatch):
    def not_found(*arguments, **options):
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setenv(CONNECTION, f"AccountName=acmee;AccountKey={KEY};EndpointSuffix=core.windows.net")
    monkeypatch.setattr(socket, "getaddrinfo", not_found)
    with pytest.raises(
        StorageError, match="az://c/f: cannot read: there is no storage account of this name .*acmee.blob"
    ):
        AzureStorage().read_bytes("az://c/f")


def test_a_token_of_shared_access_is_enough(bucket, store, monkeypatch):
    until = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(hours=1)
    token = generate_account_sas(ACCOUNT, KEY, resource_types="co", permission="rlcwd", expiry=until)
    monkeypatch.setenv(CONNECTION, f"BlobEndpoint={store.url}/{ACCOUNT};SharedAccessSignature={token}")

    check_files(AzureStorage(), bucket)


def test_public_containers_need_no_credentials(store, monkeypatch):
    store.client.create_container("public", public_access="container")
    AzureStorage().replace("az://public/d/f", b"bytes")
    monkeypatch.setenv("BEAM_PIPES_AZURE_ANONYMOUS", "1")

    assert storage_for("az://public").read_bytes("az://public/d/f") == b"bytes"
    assert storage_for("az://public").list("az://public/d") == ["f"]
    with pytest.raises(
        StorageForbiddenError, match="an anonymous caller may not write there .* needs the role Storage B"
    ):
        storage_for("az://public").replace("az://public/d/f", b"other")


def test_account_and_key_are_where_the_azure_command_line_has_them(store, monkeypatch):
    monkeypatch.delenv(CONNECTION)
    for name, value in {"ACCOUNT": "acme", "KEY": KEY}.items():
        monkeypatch.setenv(f"AZURE_STORAGE_{name}", value)
    of_default, of_path = (AzureStorage()._account(path) for path in ("az://c/f", "azfs://other/c/f"))

    assert of_default.url == "https://acme.blob.core.windows.net/" and of_default.credential.account_key == KEY
    assert of_path.url == "https://other.blob.core.windows.net/"
    monkeypatch.delenv("AZURE_STORAGE_KEY")
    monkeypatch.setenv("AZURE_STORAGE_SAS_TOKEN", "sv=1&sig=x")
    assert AzureStorage()._account("az://c/f").url == "https://acme.blob.core.windows.net/?sv=1&sig=x"


def test_blocks_that_another_writer_makes_the_service_drop_are_sent_again(bucket, store, monkeypatch):
    path, ours, theirs = f"{bucket}/shard", bytes(6 * MIB), b"a" * (5 * MIB)
    other, seen = AzureStorage(), []

    def plan(number, method, asked):
        if AzureStore.is_commit(method, asked):
            seen.append(asked)
            if len(seen) == 1:  # all blocks are there, and the list is on its way
                upload(other, path, theirs)
        return None

    with FaultProxy(store.url, plan) as proxy:
        stay_at(store.url, other, monkeypatch)
        store.go_to(proxy.url, monkeypatch)
        storage = AzureStorage()
        storage.upload(path, io.BytesIO(ours), size=len(ours), crc32c=0)

    assert len(seen) == 2 and other.read_bytes(path) == ours


def test_a_bit_that_flips_in_a_range_is_noticed(bucket, store, monkeypatch):
    flips = {"left": 0}

    def plan(number, method, path):
        if method == "GET" and flips["left"]:
            flips["left"] -= 1
            return FLIP
        return None

    data = bytes(range(256)) * (5 << 12)  # 5 MiB: two requests, each with its MD5
    with FaultProxy(store.url, plan) as proxy:
        store.go_to(proxy.url, monkeypatch)
        storage, path = AzureStorage(AzureOptions(most_backoff_secs=0.05)), f"{bucket}/f"
        storage.replace(path, data)
        flips["left"] = 2
        assert storage.read_range(path, 100, 4 * MIB + 300_000) == data[100 : 4 * MIB + 300_100]
        with storage.open_read(path) as file:
            flips["left"] = 1
            assert file.read() == data
        assert proxy.done[FLIP] == 3


def test_content_is_known_by_its_md5_however_it_was_written(storage, bucket, tmp_path):
    data = bytes(6 * MIB)
    upload(storage, f"{bucket}/blocks", data)
    storage.replace(f"{bucket}/once", data)
    storage.link_or_copy(f"{bucket}/once", f"{bucket}/copy")

    found = {storage.status(f"{bucket}/{name}").content_digest for name in ("blocks", "once", "copy")}
    md5 = base64.b64encode(hashlib.md5(data).digest()).decode()
    assert found == {f"md5:{md5}:{len(data)}"}
    assert {one.content_digest for one in storage.objects(bucket)} == found


def test_a_blob_that_somebody_leases_is_reported_in_words(storage, bucket, store):
    storage.replace(f"{bucket}/f", b"bytes")
    BlobLeaseClient(store.client.get_blob_client(bucket.removeprefix("az://"), "f")).acquire()

    with pytest.raises(
        StorageError, match="cannot write: what is there does not allow it .*a lease of somebody else, s"
    ):
        storage.replace(f"{bucket}/f", b"other")
    assert storage.read_bytes(f"{bucket}/f") == b"bytes"


def test_a_blob_that_is_replaced_between_two_requests_of_one_reading_is_read_again(bucket, store, monkeypatch):
    path, before, after = f"{bucket}/f", b"a" * (5 * MIB), b"b" * (5 * MIB)
    direct = AzureStorage()
    direct.replace(path, before)
    stay_at(store.url, direct, monkeypatch)
    gets = []

    def plan(number, method, asked):
        gets.extend([asked] if method == "GET" else [])
        if len(gets) == 2 and method == "GET":
            direct.replace(path, after)
        return None

    with FaultProxy(store.url, plan) as proxy:
        store.go_to(proxy.url, monkeypatch)
        assert AzureStorage(AzureOptions(most_backoff_secs=0.05)).read_bytes(path) == after
    assert len(gets) == 4
