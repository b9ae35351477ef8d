"""Lakes in object stores: conditional writes, the lease, and what errors of the store say."""

import json
import os
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace

import pytest

from offsetlake.errors import BadRequest, LakeBusy, LakeUnusable
from offsetlake.lake.lake import Lake
from offsetlake.lake.location import lease, object_store
from offsetlake.lake.location.aws_profile import profile_credentials
from offsetlake.lake.location.folder import Folder
from offsetlake.lake.location.locate import locate
from offsetlake.lake.location.object_store import ObjectStore
from support.object_store.proxy import EVERY_FAULT, Fault, Proxy, Refusal, Request, proxy_before
from support.object_store.server import KEY, SECRET, S3Server


@pytest.fixture
def store(bucket: str) -> ObjectStore:
    return ObjectStore(f"s3://{bucket}/lakes/kafka")


@pytest.fixture
def proxy(s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[Proxy]:
    with proxy_before(s3.port) as proxy:
        monkeypatch.setenv("AWS_ENDPOINT_URL", proxy.endpoint)
        yield proxy


def forget_versions() -> None:
    """Make this process another one, which has not seen any object."""
    object_store._seen.clear()


@pytest.mark.parametrize(
    ("lake", "location"),
    [
        ("s3://bucket/a/b/", "s3://bucket/a/b"),
        ("gs://bucket/a", "gs://bucket/a"),
        ("abfss://container@account.dfs.core.windows.net/a", "abfss://container@account.dfs.core.windows.net/a"),
        ("s3://bucket", "s3://bucket"),
    ],
)
def test_uri_of_a_known_scheme_is_a_location(lake: str, location: str) -> None:
    assert str(locate(lake)) == location
    assert isinstance(locate(lake), ObjectStore)


@pytest.mark.parametrize("lake", ["hdfs://host/lake", "file:///lake", "s3:/bucket/lake", "s3://", "http://host/lake"])
def test_other_uris_are_refused(lake: str) -> None:
    with pytest.raises(BadRequest, match="schemes are s3, gs, abfss"):
        locate(lake)


def test_path_is_a_folder() -> None:
    assert isinstance(locate("lake"), Folder)


def test_small_files_are_written_read_and_removed(store: ObjectStore) -> None:
    assert store.read("plan") is None
    store.replace("plan", b"1")
    store.replace("plan", b"2")
    forget_versions()
    assert store.read("plan") == b"2"
    store.remove("plan")
    assert store.read("plan") is None
    assert "plan" not in store.names()
    store.replace("plan", b"3")
    assert store.read("plan") == b"3"


def test_file_that_another_process_wrote_is_not_overwritten(store: ObjectStore) -> None:
    store.replace("plan", b"ours")
    seen = dict(object_store._seen)
    forget_versions()
    store.replace("plan", b"theirs")
    object_store._seen.update(seen)
    with pytest.raises(LakeBusy, match="another process has written"):
        store.replace("plan", b"ours again")
    assert store.read("plan") == b"theirs"


def test_file_is_created_once(store: ObjectStore) -> None:
    assert store.create("0.json", b"first")
    assert not store.create("0.json", b"second")
    assert store.read("0.json") == b"first"


def test_names_are_those_directly_inside(store: ObjectStore) -> None:
    store.replace("version", b"1")
    log = store.child("offsets").child("_delta_log")
    for version in range(3):
        log.create(f"{version}.json", b"{}")
    assert store.names() == ["offsets", "version"]
    assert log.names() == ["0.json", "1.json", "2.json"]
    assert log.names(after="0.json") == ["1.json", "2.json"]
    assert store.child("nothing").names() == []


@pytest.mark.parametrize("fault", EVERY_FAULT, ids=str)
def test_put_is_done_once_whatever_happens_to_it(fault: Fault | Refusal, proxy: Proxy, bucket: str) -> None:
    store = ObjectStore(f"s3://{bucket}/lake")
    failed: list[Request] = []

    def first_put_fails(request: Request) -> Fault | Refusal:
        if request.method != "PUT" or failed:
            return Fault.NONE
        failed.append(request)
        return fault

    proxy.fault = first_put_fails
    store.replace("plan", b"1")
    failed.clear()
    store.replace("plan", b"2")
    failed.clear()
    assert store.create("entry", b"3")
    failed.clear()
    with store.lock("ingest", lambda _: None) as held:
        failed.clear()
        held.check()
    assert (store.read("plan"), store.read("entry")) == (b"2", b"3")
    assert failed


def test_only_one_of_many_gets_the_lease(store: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lease, "_POLL_SECONDS", 0.01)
    holders, most, epochs = [], [], []
    guard = threading.Lock()

    def work() -> None:
        with store.lock("ingest", lambda _: None) as held:
            with guard:
                holders.append(1)
                most.append(len(holders))
                epochs.append(held.epoch)
            with guard:
                holders.pop()

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert max(most) == 1
    assert sorted(epochs) == [1, 2, 3, 4, 5, 6]


def test_lease_of_a_holder_that_ended_is_taken_over(store: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lease, "_POLL_SECONDS", 0.01)
    monkeypatch.setattr(lease, "TTL_SECONDS", 0.3)
    said: list[str] = []
    with ExitStack() as paused:
        first = paused.enter_context(store.lock("ingest", said.append))
        assert (first.epoch, first.taken_over) == (1, False)
        first._end.set()  # it renews no more, as if it was paused
        with store.lock("compact", said.append) as second:
            assert (second.epoch, second.taken_over) == (2, True)
            second.fenced = True
            monkeypatch.setattr(lease, "RENEWAL_SECONDS", 0.0)
            second.check()
            with pytest.raises(LakeBusy, match=r"taken over by compact \(process \d+ on .+\), which has it since 20"):
                first.check()
    assert len(said) == 1
    assert "waiting for ingest (process" in said[0]
    with store.lock("expire", said.append) as third:
        assert (third.epoch, third.taken_over) == (3, False)


def test_lease_without_a_complete_fence_is_taken_over_again(
    store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lease, "_POLL_SECONDS", 0.01)
    monkeypatch.setattr(lease, "TTL_SECONDS", 0.1)
    with ExitStack() as paused:
        first = paused.enter_context(store.lock("ingest", lambda _: None))
        first._end.set()
        with store.lock("compact", lambda _: None) as second:
            assert second.taken_over  # it ends before it has written its epoch to all tables
        with store.lock("compact", lambda _: None) as third:
            assert third.taken_over


def test_lease_that_is_renewed_is_not_taken_over(store: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the clock of the waiting job, the lease is renewed somewhat before it expires, and that for a minute."""
    monkeypatch.setattr(lease, "RENEWAL_SECONDS", 0.01)
    seconds, sleep = 0.0, time.sleep

    def renewed_meanwhile(_seconds: float) -> None:
        nonlocal seconds
        renewal = held._holder.renewal
        while held._holder.renewal == renewal:
            sleep(0.001)
        seconds += 0.9 * lease.TTL_SECONDS

    busy = pytest.raises(LakeBusy, match=r"ingest .* still writes to s3://.*: try again")
    with store.lock("ingest", lambda _: None) as held:
        clock = SimpleNamespace(monotonic=lambda: seconds, sleep=renewed_meanwhile)
        monkeypatch.setattr(lease, "time", clock)
        with busy, store.lock("compact", lambda _: None):
            pass


def test_object_that_is_no_lease_is_named(store: ObjectStore) -> None:
    store.create("lock", b"ingest (process 7)")
    with pytest.raises(LakeUnusable, match="lock is not a lease"), store.lock("ingest", lambda _: None):
        pass


def test_missing_bucket_is_named() -> None:
    with pytest.raises(LakeUnusable, match=r"s3://no-such-bucket/lake cannot be used: the bucket does not exist"):
        ObjectStore("s3://no-such-bucket/lake").names()


@pytest.mark.parametrize(
    ("refusal", "message"),
    [
        (Refusal(403, "AccessDenied"), "permission to {verb} objects is denied"),
        (Refusal(400, "ExpiredToken"), "the credentials have expired"),
        (Refusal(403, "InvalidAccessKeyId"), "the credentials are not accepted"),
        (Refusal(403, "SignatureDoesNotMatch"), "the credentials are not accepted"),
        (Refusal(400, "AuthorizationHeaderMalformed"), "the bucket is in another region"),
        (Refusal(403, "RequestTimeTooSkewed"), "the clock of this machine differs"),
        (Refusal(501, "NotImplemented"), "the store lacks conditional puts"),
        (
            Refusal(
                400,
                "InvalidRequest",
                "Content-MD5 OR x-amz-checksum- HTTP header is required for Put Object requests "
                "with Object Lock parameters",
            ),
            "the bucket has object lock, and requires a checksum with each put",
        ),
    ],
    ids=lambda value: value.code if isinstance(value, Refusal) else "",
)
def test_refusal_is_explained(
    refusal: Refusal, message: str, proxy: Proxy, bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(object_store, "RETRIES", {"max_retries": 0})
    store = ObjectStore(f"s3://{bucket}/lake")
    proxy.fault = lambda _: refusal
    calls = {"list": store.names, "read": lambda: store.read("plan"), "write": lambda: store.create("plan", b"1")}
    for verb, call in calls.items():
        with pytest.raises(LakeUnusable, match=f"^the lake s3://{bucket}/lake cannot be used: ") as raised:
            call()
        assert message.format(verb=verb) in str(raised.value)
        assert SECRET not in str(raised.value)
    with pytest.raises(LakeUnusable, match="cannot be used"), store.lock("ingest", lambda _: None):
        pass
    with pytest.raises(LakeUnusable, match="cannot be used"):
        Lake.create(store)


def test_store_that_is_not_there_is_explained(monkeypatch: pytest.MonkeyPatch, s3: S3Server, bucket: str) -> None:
    with proxy_before(s3.port) as gone:
        monkeypatch.setenv("AWS_ENDPOINT_URL", gone.endpoint)
    store = ObjectStore(f"s3://{bucket}/lake")
    monkeypatch.setattr(object_store, "RETRIES", {"max_retries": 1})
    with pytest.raises(LakeUnusable, match=r"the store cannot be reached \(to read objects\): check the network"):
        store.read("plan")


def test_credentials_of_a_profile_come_from_the_aws_cli(
    bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = json.dumps({"Version": 1, "AccessKeyId": KEY, "SecretAccessKey": SECRET})
    program = tmp_path / "aws"
    program.write_text(f"#!/bin/sh\ntest \"$AWS_PROFILE\" = prod && echo '{answer}'\n", encoding="utf-8")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    monkeypatch.setenv("AWS_PROFILE", "prod")
    store = ObjectStore(f"s3://{bucket}/of-a-profile")
    store.replace("plan", b"1")
    assert store.read("plan") == b"1"


def test_profile_without_the_aws_cli_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.setenv("AWS_PROFILE", "prod")
    with pytest.raises(BadRequest, match="the AWS CLI, which reads profiles, is not on the PATH"):
        profile_credentials()
