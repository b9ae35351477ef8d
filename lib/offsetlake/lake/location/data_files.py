"""Reads data files of an object store. A small one is read whole, in one request, and kept in memory.

Data files never change, and a job reads many of them several times: files that it has just written, and the same file
for several log partitions.
"""

import threading
from collections import OrderedDict

import obstore
import pyarrow as pa
from deltalake.fs import DeltaStorageHandler
from obstore.store import ObjectStore

MAX_SMALL_BYTES = 4 << 20
"""Size of the largest file that is read whole."""
MAX_KEPT_BYTES = 32 << 20
"""Size of all files together that a process keeps in memory."""

_kept: OrderedDict[str, bytes] = OrderedDict()
_guard = threading.Lock()


def keep(uri: str, content: bytes) -> None:
    """Keep the content of a small file, in place of those that were not used for longest."""
    with _guard:
        _kept[uri] = content
        _kept.move_to_end(uri)
        while sum(map(len, _kept.values())) > MAX_KEPT_BYTES:
            _kept.popitem(last=False)


class DataFiles(DeltaStorageHandler):
    """The files under a URI for pyarrow; larger ones are read by delta-rs."""

    def __init__(self, uri: str, client: ObjectStore) -> None:
        super().__init__(uri)
        self._uri, self._client = uri, client

    def open_input_file(self, path: str) -> pa.NativeFile:
        """Return a file for reading at any position; raise FileNotFoundError if it does not exist."""
        uri = f"{self._uri}/{path}"
        with _guard:
            content = _kept.get(uri)
        if content is None:
            first = obstore.get(self._client, path, options={"range": (0, MAX_SMALL_BYTES)})
            size = first.meta["size"]
            if size > MAX_SMALL_BYTES:
                return DeltaStorageHandler(self._uri, None, {path: size}).open_input_file(path)
            content = bytes(first.bytes())
        keep(uri, content)
        return pa.BufferReader(content)
