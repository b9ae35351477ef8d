"""A real server with users who lack a permission, other regions, and buckets with versioning or object lock."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from offsetlake.errors import LakeUnusable
from offsetlake.lake.lake import Lake
from offsetlake.lake.location import object_store
from support.e2e.in_process import InProcess
from support.e2e.lakes import cycle, state, upkeep
from support.object_store.server import KEY, SECRET, VERSITYGW, S3Server, upload

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(not VERSITYGW.exists(), reason="moto does not check permissions and regions"),
]

LOG = Path(__file__).parents[2] / "fixtures" / "broker-log"
ACTIONS = {"list": "s3:ListBucket", "read": "s3:GetObject", "write": "s3:PutObject", "delete": "s3:DeleteObject"}
USER, USER_SECRET = "user", "secret-of-the-user"


@pytest.fixture(scope="module", autouse=True)
def user(s3: S3Server) -> None:
    s3.add_user(USER, USER_SECRET)


@pytest.fixture(autouse=True)
def clients() -> Iterator[None]:
    """Discard cached clients, so that new ones read the environment."""
    object_store._client.cache_clear()
    yield
    object_store._client.cache_clear()


def maintained(lake: Lake) -> Lake:
    """Run jobs that list, read, write and delete objects; each version of a table but the newest is vacuumed."""
    cycle(InProcess(), lake, LOG)
    upkeep(lake)
    return lake


def be_user(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", USER)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", USER_SECRET)
    object_store._client.cache_clear()


@pytest.mark.parametrize("denied", [*ACTIONS, ""])
def test_permission_that_is_denied_is_named(
    denied: str, s3: S3Server, bucket: str, broker_lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    upload(Path(str(broker_lake.location)), f"s3://{bucket}/lake")
    allowed = [action for verb, action in ACTIONS.items() if verb != denied]
    resources = [f"arn:aws:s3:::{bucket}/*", *([f"arn:aws:s3:::{bucket}"] if denied != "list" else [])]
    statement = {"Effect": "Allow", "Principal": {"AWS": [USER]}, "Action": allowed, "Resource": resources}
    policy = {"Version": "2012-10-17", "Statement": [statement]}
    s3.administer("s3.put_bucket_policy", Bucket=bucket, Policy=json.dumps(policy))
    be_user(monkeypatch)
    if not denied:
        maintained(Lake.create(f"s3://{bucket}/lake"))
        return
    sentence = f"^the lake s3://{bucket}/lake cannot be used: permission to {denied} objects is denied"
    with pytest.raises(LakeUnusable, match=sentence) as raised:
        maintained(Lake.create(f"s3://{bucket}/lake"))
    assert USER_SECRET not in str(raised.value)


@pytest.mark.parametrize(
    ("variable", "value", "message"),
    [
        ("AWS_REGION", "eu-central-1", "the bucket is in another region"),
        ("AWS_ACCESS_KEY_ID", "unknown", "the credentials are not accepted"),
        ("AWS_SECRET_ACCESS_KEY", "wrong", "the credentials are not accepted"),
    ],
)
def test_wrong_client_is_refused(
    variable: str, value: str, message: str, bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, value)
    with pytest.raises(LakeUnusable, match=message) as raised:
        Lake.create(f"s3://{bucket}/lake")
    assert SECRET not in str(raised.value)
    assert KEY not in str(raised.value)


@pytest.mark.parametrize("kind", ["versioning", "object lock"])
def test_bucket_that_keeps_old_versions_contains_a_lake(
    kind: str, s3: S3Server, bucket: str, broker_lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    if kind == "versioning":
        s3.administer("s3.put_bucket_versioning", Bucket=bucket, VersioningConfiguration={"Status": "Enabled"})
    else:
        bucket = f"{bucket}-locked"
        s3.administer("s3.create_bucket", Bucket=bucket, ObjectLockEnabledForBucket=True)
        rule = {"DefaultRetention": {"Mode": "GOVERNANCE", "Days": 1}}
        lock = {"ObjectLockEnabled": "Enabled", "Rule": rule}
        s3.administer("s3.put_object_lock_configuration", Bucket=bucket, ObjectLockConfiguration=lock)
        monkeypatch.setenv("AWS_CHECKSUM_ALGORITHM", "SHA256")
    upload(Path(str(broker_lake.location)), f"s3://{bucket}/lake")
    lake = maintained(Lake.create(f"s3://{bucket}/lake"))
    assert state(lake) == state(broker_lake)
