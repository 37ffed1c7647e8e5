"""A server that is a function from a request to its answer, in threads of this process."""

from __future__ import annotations

import contextlib
import socketserver
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager

from remote.servers.http1 import Asked, Reply, header, read_body, read_request_head


class _Server(socketserver.ThreadingTCPServer):
    daemon_threads = True
    request_queue_size = 256

    def __init__(self, answer: Callable[[Asked], Reply]) -> None:
        self.answer = answer
        super().__init__(("127.0.0.1", 0), _Handler)


class _Handler(socketserver.StreamRequestHandler):
    disable_nagle_algorithm = True

    def handle(self) -> None:
        assert isinstance(self.server, _Server)
        with contextlib.suppress(OSError):  # clients leave when they like
            while (asked := read_request_head(self.rfile)) is not None:
                if (header(asked.headers, "expect") or "").lower() == "100-continue":
                    self.wfile.write(b"HTTP/1.1 100 Continue\r\n\r\n")
                body = read_body(self.rfile, asked.headers, to_end=False)
                reply = self.server.answer(Asked(asked.method, asked.target, asked.headers, body))
                self.wfile.write(reply.encoded() + reply.body)


@contextmanager
def answering(answer: Callable[[Asked], Reply]) -> Generator[str]:
    """Run it until the block ends; gives its address."""
    with _Server(answer) as server:
        thread = threading.Thread(
            target=server.serve_forever, args=(0.05,), name="answering", daemon=True
        )
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()
