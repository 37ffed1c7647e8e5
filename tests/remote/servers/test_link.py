"""The link delays, limits and shares, and passes everything through unchanged."""

from __future__ import annotations

import hashlib
import random
import socket
import struct
import threading
import time
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from urllib.parse import urlsplit

import pytest

from remote.servers.link import link
from remote.servers.nginx import Nginx
from remote.servers.s3 import request

ROUND_TRIP = 0.020
# epoll's milliseconds: a byte may be half of one early, at each of two ends and each way.
LEAST = ROUND_TRIP - 0.002


@contextmanager
def served(what) -> Generator[str]:
    """A server that gives each connection to `what`, in a thread of its own."""
    threads = []

    def accept() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            threads.append(threading.Thread(target=what, args=(connection,)))
            threads[-1].start()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threads.append(threading.Thread(target=accept))
        threads[0].start()
        try:
            yield f"tcp://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            listener.shutdown(socket.SHUT_RDWR)
    for thread in threads:
        thread.join(10)


def echo(connection: socket.socket) -> None:
    with connection:
        while data := connection.recv(1 << 16):
            connection.sendall(data)


def connected(endpoint: str) -> socket.socket:
    parts = urlsplit(endpoint)
    return socket.create_connection((parts.hostname, parts.port), timeout=20)


def test_each_byte_takes_a_round_trip_and_the_first_takes_two() -> None:
    with served(echo) as server, link(server) as far, connected(far.endpoint) as client:
        taken = []
        for _ in range(5):
            begun = time.monotonic()
            client.sendall(b"x")
            assert client.recv(1) == b"x"
            taken.append(time.monotonic() - begun)
        assert taken[0] >= 2 * LEAST
        assert min(taken[1:]) >= LEAST


@pytest.mark.parametrize("streams", [1, 4])
def test_all_connections_share_one_rate(nginx: Nginx, streams: int) -> None:
    body = random.Random(streams).randbytes(2_000_000)
    (nginx.files / "body").write_bytes(body)
    rate = 20e6
    with link(nginx.endpoint, rate=rate) as far, ThreadPoolExecutor(streams) as pool:
        begun = time.monotonic()
        urls = [f"{far.endpoint}/strong/body"] * streams
        found = list(pool.map(lambda url: request("GET", url).body, urls))
        taken = time.monotonic() - begun
    assert all(one == body for one in found)
    assert taken >= streams * len(body) / rate


def test_a_new_connection_starts_slowly(nginx: Nginx) -> None:
    # 10 segments are 14 KB, so 100 KB take the round trips of 14, 29 and 57 KB.
    (nginx.files / "some").write_bytes(bytes(100_000))
    with link(nginx.endpoint) as far:
        begun = time.monotonic()
        request("GET", f"{far.endpoint}/strong/some")
        assert time.monotonic() - begun >= 4 * LEAST


def test_both_directions_at_once_are_unchanged() -> None:
    sent = random.Random(1).randbytes(5_000_000)
    with served(echo) as server, link(server) as far, connected(far.endpoint) as client:
        writer = threading.Thread(
            target=lambda: (client.sendall(sent), client.shutdown(socket.SHUT_WR))
        )
        writer.start()
        digest = hashlib.sha256()
        while data := client.recv(1 << 16):
            digest.update(data)
        writer.join()
    assert digest.digest() == hashlib.sha256(sent).digest()


def test_resets_go_through() -> None:
    def reset(connection: socket.socket) -> None:
        connection.recv(1)
        connection.sendall(b"some")
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        connection.close()

    with served(reset) as server, link(server) as far, connected(far.endpoint) as client:
        client.sendall(b"x")
        with pytest.raises(ConnectionResetError):
            while client.recv(100):
                pass


def test_a_server_that_is_away_refuses() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    with link(f"tcp://127.0.0.1:{port}") as far, connected(far.endpoint) as client:
        expected = pytest.raises(ConnectionResetError)
        with expected:
            client.recv(1)


def test_a_client_that_leaves_is_forgotten(nginx: Nginx) -> None:
    (nginx.files / "body").write_bytes(bytes(20_000_000))
    with link(nginx.endpoint) as far:
        for _ in range(3):
            with connected(far.endpoint) as client:
                client.sendall(b"GET /strong/body HTTP/1.1\r\nHost: x\r\n\r\n")
                client.recv(1000)
        before = far.cpu_seconds()
        time.sleep(0.3)
        assert far.cpu_seconds() - before <= 0.1
        assert request("GET", f"{far.endpoint}/strong/body", {"Range": "bytes=0-9"}).status == 206
