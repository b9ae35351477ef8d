"""The request multiRead of ZooKeeper 3.6 (ZOOKEEPER-3402), which kazoo lacks: reads many znodes with one request."""

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from kazoo.exceptions import EXCEPTIONS
from kazoo.protocol.serialization import (
    GetChildren,
    GetData,
    MultiHeader,
    Transaction,
    int_struct,
    read_buffer,
    read_string,
    stat_struct,
)
from kazoo.protocol.states import ZnodeStat

Request = Literal["get", "get_children"]
"""A read, by the method of kazoo's client that returns the same."""

_ERROR = -1


@dataclass(frozen=True, slots=True)
class MultiRead:
    """A request that kazoo can send; source: org.apache.zookeeper.MultiOperationRecord and MultiResponse."""

    request: Request
    paths: list[str]
    type: ClassVar[int] = 22  # ZooDefs.OpCode.multiRead

    def serialize(self) -> bytes:
        """Return the bytes of the request."""
        read = GetData if self.request == "get" else GetChildren
        content: bytes = Transaction([read(path, None) for path in self.paths]).serialize()
        return content

    def deserialize(self, content: bytes, offset: int) -> list[Any]:
        """Return what the method of the client returns for each path, or the KazooException that it raises."""
        results: list[Any] = []
        header, offset = MultiHeader.deserialize(content, offset)
        while not header.done:
            if header.type == GetData.type:
                data, offset = read_buffer(content, offset)
                results.append((data, ZnodeStat._make(stat_struct.unpack_from(content, offset))))
                offset += stat_struct.size
            elif header.type == GetChildren.type:
                children, offset = _strings(content, offset)
                results.append(children)
            elif header.type == _ERROR:
                (code,) = int_struct.unpack_from(content, offset)
                results.append(EXCEPTIONS[code]())
                offset += int_struct.size
            else:
                raise ValueError(f"Unexpected type {header.type} in a response of ZooKeeper.")
            header, offset = MultiHeader.deserialize(content, offset)
        return results


def _strings(content: bytes, offset: int) -> tuple[list[str], int]:
    (count,) = int_struct.unpack_from(content, offset)
    offset += int_struct.size
    strings = []
    for _ in range(count):
        text, offset = read_string(content, offset)
        strings.append(text)
    return strings, offset
