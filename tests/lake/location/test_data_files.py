"""Data files of an object store: small ones are read in one request, once; others by ranges."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from offsetlake.lake.location import data_files
from offsetlake.lake.location.object_store import ObjectStore
from support.object_store.proxy import Proxy, proxy_before
from support.object_store.server import S3Server


@pytest.fixture
def proxy(s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[Proxy]:
    monkeypatch.setattr(data_files, "_kept", type(data_files._kept)())
    with proxy_before(s3.port) as proxy:
        monkeypatch.setenv("AWS_ENDPOINT_URL", proxy.endpoint)
        yield proxy


@pytest.fixture
def store(proxy: Proxy, bucket: str) -> ObjectStore:
    return ObjectStore(f"s3://{bucket}/table")


def read(store: ObjectStore, name: str) -> bytes:
    with store.filesystem.open_input_file(store.path_of(name)) as file:
        return bytes(file.read())


def test_small_file_is_read_once(store: ObjectStore, proxy: Proxy) -> None:
    store.create("file", b"content")
    proxy.requests.clear()
    assert [read(store, "file") for _ in range(3)] == [b"content"] * 3
    assert [request.method for request in proxy.requests] == ["GET"]


def test_file_that_this_process_wrote_is_not_read(store: ObjectStore, proxy: Proxy, tmp_path: Path) -> None:
    (tmp_path / "written").write_bytes(b"content")
    store.keep("file", tmp_path / "written")
    proxy.requests.clear()
    assert read(store, "file") == b"content"
    assert not proxy.requests


def test_large_file_is_read_by_ranges(store: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data_files, "MAX_SMALL_BYTES", 10)
    store.create("file", bytes(range(100)))
    with store.filesystem.open_input_file("file") as file:
        file.seek(90)
        assert file.read(5) == bytes(range(90, 95))
        assert file.size() == 100
    assert not data_files._kept


def test_files_are_kept_up_to_a_limit(store: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data_files, "MAX_KEPT_BYTES", 10)
    for name in "abc":
        store.create(name, name.encode() * 4)
        assert read(store, name) == name.encode() * 4
    assert [*data_files._kept] == [f"{store}/b", f"{store}/c"]


def test_missing_file_is_an_error(store: ObjectStore) -> None:
    with pytest.raises(FileNotFoundError):
        read(store, "missing")
