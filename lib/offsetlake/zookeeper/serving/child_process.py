"""Starts the child process for ZooKeeper, and sends requests to it."""

import asyncio
import contextlib
import json
import sys
from collections.abc import AsyncIterator, Sequence

from offsetlake.errors import LogUnavailable
from offsetlake.zookeeper.serving.frames import LENGTH, Message, Row, frame

MAX_ROWS_PER_FRAME = 300
"""The event loop encodes so many rows in well under a millisecond."""


class ZooKeeperChild:
    """A child process, which is started when it is needed; only one task may use it.

    `url` and `file` are the arguments of `offsetlake.zookeeper.serving.child`.
    """

    def __init__(self, url: str, file: str | None) -> None:
        self._arguments = [url] if file is None else [url, file]
        self._process: asyncio.subprocess.Process | None = None

    async def ask(self, request: Message, rows: AsyncIterator[Sequence[Row]]) -> Message:
        """Send a request with rows, each part of at most MAX_ROWS_PER_FRAME, and return the answer.

        Raises:
            LogUnavailable: ZooKeeper cannot be used, or the process ended.
        """
        try:
            requests, answers = await self._pipes()
            async for part in rows:
                requests.write(frame({"rows": part, "more": True}))
                await requests.drain()
                await asyncio.sleep(0)
            requests.write(frame({"rows": [], **request}))
            (size,) = LENGTH.unpack(await answers.readexactly(LENGTH.size))
            answer: Message = json.loads(await answers.readexactly(size))
        except (OSError, asyncio.IncompleteReadError) as error:
            await self.close()
            raise LogUnavailable("The process with the connection to ZooKeeper ended; it is started again.") from error
        except BaseException:
            await self.close()  # a part of a request may have been sent
            raise
        if "error" in answer:
            raise LogUnavailable(answer["error"])
        return answer

    async def _pipes(self) -> tuple[asyncio.StreamWriter, asyncio.StreamReader]:
        """Return the pipes of the process, which is started if it does not run."""
        if self._process is None:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "offsetlake.zookeeper.serving.child",
                *self._arguments,
                start_new_session=True,  # Ctrl-C reaches only the parent, which writes the last changes
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
            )
        requests, answers = self._process.stdin, self._process.stdout
        if requests is None or answers is None:
            raise RuntimeError("The process has no pipes.")
        return requests, answers

    async def close(self) -> None:
        """Kill the process."""
        process, self._process = self._process, None
        if process is not None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()
