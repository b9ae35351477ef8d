"""How many pages the console renders at once."""

import asyncio
import socket
import threading

from fastapi import FastAPI

from offsetlake.auth.security_files import SecurityFiles, SecurityPaths
from offsetlake.web.console.server import MAX_PAGES_AT_ONCE, _config, _Server


def test_pages_above_the_maximum_wait_for_others() -> None:
    app, lock, together = FastAPI(), threading.Lock(), threading.Barrier(MAX_PAGES_AT_ONCE)
    under_way, numbers = [0], list[int]()

    @app.get("/")
    def page() -> None:
        with lock:
            under_way[0] += 1
            numbers.append(under_way[0])
        together.wait(60)
        with lock:
            under_way[0] -= 1

    async def visit(port: int) -> bytes:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        answer = await reader.read()
        writer.close()
        return answer.split(b" ")[1]

    async def visits() -> list[bytes]:
        config = _config(app, behind_proxy=False)
        server = _Server(config, SecurityFiles(SecurityPaths()), lambda: None)
        server.lifespan = config.lifespan_class(config)
        with socket.create_server(("127.0.0.1", 0)) as listener:
            await server.startup([listener])
            answers = await asyncio.gather(*(visit(listener.getsockname()[1]) for _ in range(3 * MAX_PAGES_AT_ONCE)))
            await server.shutdown([listener])
        return answers

    assert asyncio.run(visits()) == [b"200"] * 3 * MAX_PAGES_AT_ONCE
    assert max(numbers) == MAX_PAGES_AT_ONCE
