"""Servers that lie, for the tests of object stores."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from remote.liar import Answer, Serve, Server, part


@pytest.fixture
def serve() -> Iterator[Serve]:
    servers: list[Server] = []

    def start(*answers: Answer, always: Answer = part) -> Server:
        servers.append(Server(list(answers), always))
        return servers[-1]

    yield start
    for server in servers:
        server.close()
