"""Lakes in object stores: S3 and stores that are compatible with it, Google Cloud Storage, Azure Data Lake Storage.

Every write of a small file is conditional on what this process has seen of the file, so that of two processes that
write it one is refused. Credentials come from where the client libraries of the stores look for them: environment
variables, instance roles, and profiles.
"""

import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import timedelta
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import obstore
from obstore.exceptions import AlreadyExistsError, PreconditionError
from obstore.store import S3Store, from_url

from offsetlake.errors import LakeBusy, LakeUnusable
from offsetlake.lake.location.aws_profile import profile_credentials
from offsetlake.lake.location.lease import acquire
from offsetlake.lake.location.location import Lease, Location
from offsetlake.lake.location.store_errors import explain

if TYPE_CHECKING:
    from obstore.store import ObjectStore as Client
    from obstore.store import RetryConfig
    from pyarrow.fs import FileSystem

RETRIES: "RetryConfig" = {"max_retries": 10, "retry_timeout": timedelta(seconds=60)}
"""A store that is unavailable for longer ends a job; what was committed stays, and the next run continues."""

_seen: dict[tuple[str, str], str | None] = {}
"""By location and name, the ETag of a small file when this process last saw it; None if there was none."""
_listed: set[str] = set()
"""The locations whose small files this process has listed: a file that is not in `_seen` did not exist then."""


@dataclass(frozen=True, slots=True)
class ObjectStore(Location):
    """The objects whose names begin with a prefix, by its URI without a slash at the end."""

    uri: str
    tears_writes: ClassVar[bool] = False

    def __str__(self) -> str:
        """Return the URI."""
        return self.uri

    def absolute(self) -> "ObjectStore":
        """Return this location."""
        return self

    def child(self, name: str) -> "ObjectStore":
        """Return the location of a longer prefix."""
        return ObjectStore(f"{self.uri}/{name}")

    @property
    def spark_uri(self) -> str:
        """The URI, of S3 with the scheme of Hadoop's file system S3A."""
        return "s3a" + self.uri.removeprefix("s3") if self.uri.startswith("s3://") else self.uri

    @property
    def filesystem(self) -> "FileSystem":
        """A file system that finds its credentials as the commits do."""
        return _filesystem(self.uri)

    def path_of(self, name: str) -> str:
        """Return the name: `filesystem` begins at the prefix."""
        return name

    @property
    def _client(self) -> "Client":
        return _client(self.uri)

    def names(self, after: str = "") -> list[str]:
        """List the objects and the prefixes inside, in one request per thousand."""
        with self.errors():
            if after:
                found = [meta["path"] for part in obstore.list(self._client, offset=after) for meta in part]
            else:
                listed = obstore.list_with_delimiter(self._client)
                found = [*listed["common_prefixes"], *(meta["path"] for meta in listed["objects"] if meta["size"])]
                _seen.update({(self.uri, meta["path"]): meta["e_tag"] for meta in listed["objects"]})
                _listed.add(self.uri)
        return sorted({path.split("/")[0] for path in found})

    def read(self, name: str) -> bytes | None:
        """Return the content of an object; None if it does not exist or was removed."""
        with self.errors():
            try:
                found = obstore.get(self._client, name)
                content = bytes(found.bytes())
            except FileNotFoundError as error:
                if explain(str(self), error):
                    raise
                _seen[self.uri, name] = None
                return None
        _seen[self.uri, name] = found.meta["e_tag"]
        return content or None

    def create(self, name: str, content: bytes) -> bool:
        """Write an object if none exists (`If-None-Match`)."""
        with self.errors():
            try:
                obstore.put(self._client, name, content, mode="create")
            except (AlreadyExistsError, PreconditionError):
                return self.read(name) == content  # the answer to the first attempt was lost
        return True

    def replace(self, name: str, content: bytes) -> None:
        """Write an object if it is as this process has seen it (`If-Match`, `If-None-Match`), else raise LakeBusy."""
        key, seen = (self.uri, name), self._seen_etag(name)
        with self.errors():
            try:
                written = obstore.put(self._client, name, content, mode={"e_tag": seen} if seen else "create")
                _seen[key] = written["e_tag"]
            except (AlreadyExistsError, PreconditionError) as error:
                if (self.read(name) or b"") == content:  # the answer to the first attempt was lost
                    return
                raise LakeBusy(
                    f"another process has written {self}/{name} since this one read it: run the command again"
                ) from error

    def remove(self, name: str) -> None:
        """Empty an object, because not all stores have conditional deletes."""
        if self._seen_etag(name) is not None:
            self.replace(name, b"")

    def _seen_etag(self, name: str) -> str | None:
        """Return the ETag of an object when this process last saw it, None if there was none; if never, look now."""
        if (self.uri, name) not in _seen and self.uri not in _listed:
            self.read(name)
        return _seen.get((self.uri, name))

    def discard(self, name: str) -> None:
        """Delete an object."""
        with self.errors():
            obstore.delete(self._client, name)

    def rename(self, former: str, name: str) -> None:
        """Raise LakeUnusable: object stores cannot rename."""
        raise LakeUnusable(
            f"an older offsetlake made the lake {self}; its table {former} is now called {name}, but object stores "
            "cannot rename: upgrade the lake in a local folder, with any job that writes, and copy it again"
        )

    def linked_copy(self, folder: Path) -> Location:
        """Return this location."""
        return self

    @property
    def identity(self) -> str:
        """The URI."""
        return self.uri

    def prepare(self) -> None:
        """Do nothing: prefixes need not be created."""

    def new_file(self, name: str) -> Path:
        """Return a path in the folder for temporary files: an object is put when its file is complete."""
        return Path(tempfile.gettempdir(), f"offsetlake-{name}")

    def keep(self, name: str, written: Path) -> None:
        """Put a file, in parts if it is large, and unlink it; the answer to a put means that the object is durable."""
        from offsetlake.lake.location import data_files  # noqa: PLC0415 - the serving process does not write tables

        with self.errors():
            obstore.put(self._client, name, written)
        if written.stat().st_size <= data_files.MAX_SMALL_BYTES:
            data_files.keep(f"{self.uri}/{name}", written.read_bytes())
        written.unlink()

    def sync(self, *, files: bool) -> None:
        """Do nothing: the answer to a put means that the object is durable."""

    @contextmanager
    def lock(self, job: str, waiting: Callable[[str], None]) -> Iterator[Lease]:
        """Take the lease of the location, and release it at the end; see `offsetlake.lake.location.lease`."""
        with ExitStack() as stack:
            with self.errors():
                lease = stack.enter_context(acquire(self._client, self.uri, job, waiting))
            yield lease

    def explain(self, error: Exception) -> str:
        """Explain errors of the store: of credentials, permissions, buckets, regions, clocks and connections."""
        return explain(str(self), error)


@cache
def _filesystem(uri: str) -> "FileSystem":
    # The serving process does not read tables.
    from pyarrow.fs import PyFileSystem  # noqa: PLC0415

    from offsetlake.lake.location.data_files import DataFiles  # noqa: PLC0415

    return PyFileSystem(DataFiles(uri, _client(uri)))


@cache
def _client(uri: str) -> "Client":
    if uri.startswith("s3://") and os.environ.get("AWS_PROFILE"):
        return S3Store.from_url(uri, credential_provider=profile_credentials, retry_config=RETRIES)
    return from_url(uri, retry_config=RETRIES)
