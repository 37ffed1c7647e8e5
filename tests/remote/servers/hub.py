"""A server for huggingface_hub's client: data sets, their commits and files, as the Hub answers for them."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from urllib.parse import parse_qs

from remote.servers.answering import answering
from remote.servers.http1 import Asked, Reply, header

API = re.compile(r"/api/datasets/([^/]+/[^/]+?)(?:/(revision|tree|paths-info)/([^/]+)(?:/(.*))?)?$")
RESOLVE = re.compile(r"/datasets/([^/]+/[^/]+)/resolve/([^/]+)/(.*)$")
PAGE = 1000


class Missing(Exception):
    """An answer 404; its text is the Hub's code."""


@dataclass
class Hub:
    """The data sets and their commits."""

    token: str | None = None
    """The token that clients must send; None: all is public."""
    page: int = PAGE
    """The most entries in one page of a listing."""
    redirects: bool = True
    """Whether bytes come from another address, as those of large files do."""
    endpoint: str = field(default="", init=False)
    commits: dict[str, list[tuple[str, dict[str, bytes]]]] = field(default_factory=dict)

    def put(self, name: str, files: dict[str, bytes]) -> str:
        """Commit files to the data set "owner/name"; the new commit's id."""
        commits = self.commits.setdefault(name, [])
        now = {**(commits[-1][1] if commits else {}), **files}
        made = hashlib.sha1(f"{name} {len(commits)}".encode()).hexdigest()
        commits.append((made, now))
        return made

    def environment(self) -> dict[str, str]:
        """The environment in which huggingface_hub uses it; read when that is imported."""
        return {"HF_ENDPOINT": self.endpoint, "HF_HUB_DISABLE_XET": "1"} | (
            {"HF_TOKEN": self.token} if self.token else {}
        )

    def answer(self, asked: Asked) -> Reply:
        """The answer to a request."""
        try:
            reply = self._routed(asked)
        except Missing as error:
            reply = _json({"error": str(error)}, status=404).with_header("X-Error-Code", str(error))
        # A HEAD keeps the length of what it does not send.
        return Reply(reply.status, reply.headers) if asked.method == "HEAD" else reply

    def _routed(self, asked: Asked) -> Reply:
        if asked.path.startswith("/bytes/"):  # addresses that are signed, so without a token
            name, revision, path = asked.path.removeprefix("/bytes/").split("//")
            return self._bytes(asked, self._commit(name, revision)[1][path])
        if self.token and header(asked.headers, "authorization") != f"Bearer {self.token}":
            return _json({"error": "Invalid username or password."}, status=401)
        if found := RESOLVE.match(asked.path):
            return self._resolve(asked, *found.groups())
        found = API.match(asked.path)
        if not found:
            raise Missing("EntryNotFound")
        name, what, revision, path = found.groups()
        made, files = self._commit(name, revision or "main")
        if what == "tree":
            return self._tree(asked, made, files, path or "")
        if what == "paths-info":
            wanted = parse_qs(asked.body.decode()).get("paths", [])
            if asked.body.startswith(b"{"):
                wanted = json.loads(asked.body)["paths"]
            return _json(
                [entry for one in wanted for entry in _entries(made, files, one, itself=True)]
            )
        listed = [{"rfilename": one} for one in sorted(files)]
        return _json(
            {"_id": made[:24], "id": name, "sha": made, "private": False, "siblings": listed}
        )

    def _commit(self, name: str, revision: str) -> tuple[str, dict[str, bytes]]:
        if name not in self.commits:
            raise Missing("RepoNotFound")
        if revision == "main":
            return self.commits[name][-1]
        for made, files in self.commits[name]:
            if made == revision:
                return made, files
        raise Missing("RevisionNotFound")

    def _tree(self, asked: Asked, made: str, files: dict[str, bytes], path: str) -> Reply:
        query = {key: values[0] for key, values in parse_qs(asked.query).items()}
        recursive = query.get("recursive", "false").lower() in ("true", "1")
        entries = _entries(made, files, path, recursive=recursive)
        if path and not entries:
            raise Missing("EntryNotFound")
        start = int(query.get("cursor", 0))
        reply = _json(entries[start : start + self.page])
        if start + self.page < len(entries):
            kept = re.sub(r"&?cursor=\d+", "", asked.query)
            address = (
                f"{self.endpoint}{asked.target.partition('?')[0]}?{kept}&cursor={start + self.page}"
            )
            reply = reply.with_header("Link", f'<{address}>; rel="next"')
        return reply

    def _resolve(self, asked: Asked, name: str, revision: str, path: str) -> Reply:
        made, files = self._commit(name, revision)
        if path not in files:
            raise Missing("EntryNotFound")
        body = files[path]
        facts = [
            ("X-Repo-Commit", made),
            ("X-Linked-Size", str(len(body))),
            ("X-Linked-ETag", f'"{hashlib.sha256(body).hexdigest()}"'),
        ]
        if self.redirects:
            # To another host, whose answers clients do not take for the Hub's own.
            host = self.endpoint.replace("127.0.0.1", "localhost")
            encoded = asked.target.partition("/resolve/")[2].partition("/")[2]
            address = f"{host}/bytes/{name}//{made}//{encoded}"
            return Reply(302, [*facts, ("Location", address)]).with_body(b"")
        reply = self._bytes(asked, body)
        return Reply(reply.status, [*facts, *reply.headers], reply.body)

    @staticmethod
    def _bytes(asked: Asked, body: bytes) -> Reply:
        facts = [("ETag", f'"{hashlib.sha256(body).hexdigest()}"'), ("Accept-Ranges", "bytes")]
        if asked.range is None:
            return Reply(200, facts).with_body(body)
        first, last = asked.range
        first = max(0, len(body) + first) if first < 0 else first
        end = len(body) if last is None else min(last + 1, len(body))
        if first >= end:
            return Reply(416, [("Content-Range", f"bytes */{len(body)}")]).with_body(b"")
        where = ("Content-Range", f"bytes {first}-{end - 1}/{len(body)}")
        return Reply(206, [*facts, where]).with_body(body[first:end])


def _entries(
    made: str, files: dict[str, bytes], path: str, *, recursive: bool = False, itself: bool = False
) -> list[dict[str, object]]:
    """The files and folders below a path, or with `itself` the one that has this path."""
    found: dict[str, dict[str, object]] = {}
    last = {"id": made, "title": "commit", "date": "2026-01-01T00:00:00.000Z"}
    for name, body in sorted(files.items()):
        parts = name.split("/")
        for depth in range(1, len(parts) + 1):
            one = "/".join(parts[:depth])
            parent = "/".join(parts[: depth - 1])
            below = parent == path or (recursive and (not path or parent.startswith(f"{path}/")))
            if not (one == path if itself else below):
                continue
            about: dict[str, object] = {"path": one, "lastCommit": last}
            if depth < len(parts):
                about |= {
                    "type": "directory",
                    "size": 0,
                    "oid": hashlib.sha1(one.encode()).hexdigest(),
                }
            else:
                digest = hashlib.sha256(body).hexdigest()
                lfs = {"oid": digest, "size": len(body), "pointerSize": 130}
                about |= {"type": "file", "size": len(body), "oid": digest[:40], "lfs": lfs}
            found[one] = about
    return list(found.values())


def _json(given: object, status: int = 200) -> Reply:
    kind = ("Content-Type", "application/json; charset=utf-8")
    return Reply(status, [kind]).with_body(json.dumps(given).encode())


@contextmanager
def hub(token: str | None = None) -> Generator[Hub]:
    """Run the server in threads of this process."""
    state = Hub(token)
    with answering(state.answer) as state.endpoint:
        yield state
