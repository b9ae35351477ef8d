"""Fetches an offset every 5 ms until standard input is closed; then writes latencies in ms, as JSON, to stdout."""

import json
import select
import socket
import struct
import sys
import time

REQUEST = struct.pack(">hhih h5s ih1sii", 9, 2, 1, -1, 5, b"probe", 1, 1, b"t", 1, 0)
INTERVAL_SECONDS = 0.005


def main(bootstrap: str) -> None:
    host, _, port = bootstrap.rpartition(":")
    waits = []
    with socket.create_connection((host, int(port))) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        while not select.select([sys.stdin], [], [], INTERVAL_SECONDS)[0]:
            began = time.perf_counter()
            connection.sendall(struct.pack(">i", len(REQUEST)) + REQUEST)
            (size,) = struct.unpack(">i", connection.recv(4, socket.MSG_WAITALL))
            connection.recv(size, socket.MSG_WAITALL)
            waits.append(1000 * (time.perf_counter() - began))
    waits.sort()
    p50, p99 = (waits[int(len(waits) * share)] for share in (0.5, 0.99))
    json.dump({"requests": len(waits), "p50": p50, "p99": p99, "worst": waits[-1]}, sys.stdout)


if __name__ == "__main__":
    main(sys.argv[1])
