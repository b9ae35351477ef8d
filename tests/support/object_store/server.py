"""A real object store for tests: versitygw over a folder where it was built (`make .tools/versitygw`), else moto."""

import json
import os
import subprocess
import time
import urllib.error
import urllib.request
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import obstore
from obstore.store import S3Store, from_url

from offsetlake.lake.location.location import LOCK
from support.broker.broker import free_ports

ROOT = Path(__file__).parents[3]
VERSITYGW, MOTO = ROOT / ".tools" / "versitygw", ROOT / ".s3-venv" / "bin" / "python"
KEY, SECRET, REGION = "test-key", "test-secret-that-no-log-contains", "us-east-1"


class S3Server:
    """A server of the objects in a folder, on a port that it keeps when it is started again."""

    def __init__(self, folder: Path, address: str) -> None:
        (self.port,) = free_ports(1)
        self.endpoint = f"http://{address}:{self.port}"
        self._log = folder / "server.log"
        if VERSITYGW.exists():
            objects, versions, users = (folder / name for name in ("objects", "versions", "users"))
            for created in (objects, versions, users):
                created.mkdir()
            self._command = [str(VERSITYGW), "--port", f"{address}:{self.port}", "--iam-dir", str(users),
                             "posix", "--versioning-dir", str(versions), str(objects)]  # fmt: skip
        else:
            self._command = [str(MOTO), "-m", "moto.server", "-H", address, "-p", str(self.port)]

    def start(self) -> None:
        """Start the process, and wait until it answers."""
        secrets = {"ROOT_ACCESS_KEY": KEY, "ROOT_SECRET_KEY": SECRET}
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(self._command, env=os.environ | secrets, stdout=log, stderr=log)
        while not self.answers():
            assert self._process.poll() is None, self._log.read_text(encoding="utf-8")
            time.sleep(0.05)

    def kill(self) -> None:
        """Kill the process; its folder remains."""
        self._process.kill()
        self._process.wait()

    def new_bucket(self) -> str:
        """Create a bucket and return its name."""
        name = f"lake-{uuid.uuid4().hex[:12]}"
        client = S3Store(
            name,
            endpoint=self.endpoint,
            access_key_id=KEY,
            secret_access_key=SECRET,
            region=REGION,
            client_options={"allow_http": True},
        )
        request = urllib.request.Request(obstore.sign(client, "PUT", "", timedelta(minutes=1)), method="PUT")  # noqa: S310
        with urllib.request.urlopen(request, timeout=120):  # noqa: S310
            return name

    def add_user(self, key: str, secret: str) -> None:
        """Create a user, who has only the permissions that policies of buckets grant; versitygw only."""
        command = [str(VERSITYGW), "admin", "--access", KEY, "--secret", SECRET, "--endpoint-url", self.endpoint]
        subprocess.run([*command, "create-user", "--access", key, "--secret", secret, "--role", "user"], check=True)

    def administer(self, statement: str, **values: object) -> None:
        """Run a statement of Python with a client of boto3, `s3`, whose arguments are `values`."""
        program = f"import boto3, json, sys; s3 = boto3.client('s3'); {statement}(**json.loads(sys.argv[1]))"
        environment = os.environ | client_environment(self.endpoint) | {"AWS_DEFAULT_REGION": REGION}
        subprocess.run([str(MOTO), "-c", program, json.dumps(values)], env=environment, check=True)

    def answers(self) -> bool:
        """Check whether the server answers; a refusal is an answer."""
        try:
            with urllib.request.urlopen(self.endpoint, timeout=120):  # noqa: S310
                return True
        except urllib.error.HTTPError as error:
            error.close()
            return True
        except OSError:
            return False


def client_environment(endpoint: str) -> dict[str, str]:
    """Return the environment variables of clients of a server or of a proxy before it."""
    return {
        "AWS_ACCESS_KEY_ID": KEY,
        "AWS_SECRET_ACCESS_KEY": SECRET,
        "AWS_REGION": REGION,
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_ALLOW_HTTP": "true",
    }


def s3a_settings(endpoint: str) -> dict[str, str]:
    """Return the settings by which a Spark session, whose JVM runs already, uses a server."""
    return {
        "fs.s3a.endpoint": endpoint,
        "fs.s3a.endpoint.region": REGION,
        "fs.s3a.path.style.access": "true",
        "fs.s3a.access.key": KEY,
        "fs.s3a.secret.key": SECRET,
    }


def upload(folder: Path, uri: str) -> None:
    """Put the files of a lake in a folder into a store, without the lock, which is another one there."""
    client = from_url(uri)
    for file in folder.rglob("*"):
        if file.is_file() and file.name != LOCK:
            obstore.put(client, str(file.relative_to(folder)), file)


@contextmanager
def s3_server(folder: Path, address: str = "127.0.0.1") -> Iterator[S3Server]:
    """Run a server on an address with an empty folder for its objects, whose file system has extended attributes.

    versitygw's other place for ETags, `--sidecar`, makes conditional puts that are not atomic.
    """
    server = S3Server(folder, address)
    try:
        server.start()
        yield server
    finally:
        server.kill()
