"""A transport for tests without sockets."""

import asyncio


class Sink:
    """A transport that records what is written."""

    def __init__(self) -> None:
        self.written = b""
        self.closed = False

    def write(self, data: bytes) -> None:
        if not self.closed:
            self.written += data

    def close(self) -> None:
        self.closed = True

    def get_extra_info(self, name: str) -> tuple[str, int] | None:
        return ("127.0.0.1", 40000) if name == "peername" else None

    def set_write_buffer_limits(self, high: int) -> None: ...

    def set_protocol(self, _protocol: asyncio.Protocol) -> None: ...

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...
