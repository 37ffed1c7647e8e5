"""A server for the client of Azure Blob Storage, written from the documentation of its REST interface.

It has block blobs, conditions, ranges, pages of listings and batches of deletions, and checks
shared keys and shared access signatures. It has never been compared with Azure itself.
"""

from __future__ import annotations

import base64
import itertools
import re
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime, parsedate_to_datetime
from urllib.parse import parse_qsl
from xml.sax.saxutils import escape

from remote.servers.answering import answering
from remote.servers.azure_signatures import ACCOUNT, KEY, VERSION, account_sas, refusal
from remote.servers.http1 import (
    Asked,
    Reply,
    has_body,
    header,
)

MOST_LISTED = 5000
ERRORS = {
    "AuthenticationFailed": 403,
    "AuthorizationPermissionMismatch": 403,
    "NoAuthenticationInformation": 401,
    "BlobNotFound": 404,
    "ContainerNotFound": 404,
    "BlobAlreadyExists": 409,
    "ContainerAlreadyExists": 409,
    "ConditionNotMet": 412,
    "InvalidRange": 416,
    "InvalidHeaderValue": 400,
    "InvalidBlockList": 400,
    "InvalidBlobOrBlock": 400,
    "InvalidQueryParameterValue": 400,
    "MissingRequiredHeader": 400,
    "UnsupportedHttpVerb": 405,
}


class Refused(Exception):
    """An answer that is an error; its text is Azure's code."""


@dataclass(frozen=True)
class Blob:
    """One state of a blob."""

    body: bytes = field(repr=False)
    tag: str
    modified: datetime

    def facts(self) -> list[tuple[str, str]]:
        """The headers that identify it."""
        return [("ETag", f'"{self.tag}"'), ("Last-Modified", _date(self.modified))]


@dataclass
class Container:
    """Its blobs, and the blocks that are not part of one yet."""

    blobs: dict[str, Blob] = field(default_factory=dict)
    blocks: dict[str, dict[str, bytes]] = field(default_factory=dict)


class Azure:
    """The state of the server, and its answers."""

    def __init__(self) -> None:
        self.endpoint = ""
        self.containers: dict[str, Container] = {}
        self.tokens: set[str] = set()
        """The bearer tokens that it accepts."""
        self._lock = threading.RLock()
        self._numbers = itertools.count(1)

    # -- for tests --------------------------------------------------------------------------------

    def options(self, endpoint: str | None = None, *, sas: str | None = None) -> dict[str, str]:
        """`storage_options` for penstock, with the account's key or a shared access signature."""
        secret = {"azure_storage_sas_key": sas} if sas else {"azure_storage_account_key": KEY}
        return secret | {
            "azure_storage_account_name": ACCOUNT,
            "azure_storage_endpoint": endpoint or self.endpoint,
            "azure_allow_http": "true",
        }

    def sas(self, permissions: str = "rwdl", seconds: float = 600) -> str:
        """A shared access signature for the account; negative seconds: it has expired."""
        return account_sas(permissions, datetime.now(UTC) + timedelta(seconds=seconds))

    @contextmanager
    def container(self) -> Generator[str]:
        """A new container, removed at the end."""
        name = f"container-{next(self._numbers)}"
        self.containers[name] = Container()
        try:
            yield name
        finally:
            self.containers.pop(name, None)

    def put(self, container: str, name: str, body: bytes) -> str:
        """Write a blob as somebody else would; its ETag."""
        with self._lock:
            return self._store(self.containers[container], name, body).tag

    def uncommitted(self, container: str) -> list[str]:
        """The blobs with blocks that were not committed."""
        return sorted(self.containers[container].blocks)

    # -- answers ----------------------------------------------------------------------------------

    def answer(self, asked: Asked) -> Reply:
        """The answer to a request."""
        with self._lock:
            try:
                if code := refusal(asked, self.tokens):
                    raise Refused(code)
                reply = self._routed(asked)
            except Refused as error:
                reply = self._error(str(error))
        if reply.header("content-length") is None and has_body(asked.method, reply.status):
            reply = reply.with_body(reply.body)
        return reply.with_header("x-ms-version", VERSION).with_header(
            "x-ms-request-id", f"00000000-{next(self._numbers):08x}"
        )

    @staticmethod
    def _error(code: str) -> Reply:
        text = (
            f'<?xml version="1.0" encoding="utf-8"?>\n<Error><Code>{code}</Code>'
            f"<Message>{code}</Message></Error>"
        )
        reply = Reply(
            ERRORS[code], [("x-ms-error-code", code), ("Content-Type", "application/xml")]
        )
        return reply.with_body(text.encode())

    def _routed(self, asked: Asked) -> Reply:
        query = dict(parse_qsl(asked.query, keep_blank_values=True))
        # Clients of the emulator put the account before the container.
        path = asked.path.removeprefix(f"/{ACCOUNT}/").removeprefix("/")
        container, _, name = path.partition("/")
        what = (query.get("restype"), query.get("comp"))
        if not name and what == ("container", None):
            return self._of_container(asked, container)
        if container not in self.containers:
            raise Refused("ContainerNotFound")
        place = self.containers[container]
        by_comp: dict[tuple[str, str | None, str | None], Callable[[], Reply]] = {
            ("GET", "container", "list"): lambda: self._list(container, place, query),
            ("POST", "container", "batch"): lambda: self._batch(asked),
            ("PUT", None, "block"): lambda: self._put_block(asked, place, name, query),
            ("PUT", None, "blocklist"): lambda: self._put_blocks(asked, place, name),
            ("PUT", None, None): lambda: self._put_blob(asked, place, name),
            ("GET", None, None): lambda: self._get(asked, place, name),
            ("HEAD", None, None): lambda: self._get(asked, place, name),
            ("DELETE", None, None): lambda: self._delete(asked, place, name),
        }
        handler = by_comp.get((asked.method, *what))
        if handler is None:
            raise Refused("UnsupportedHttpVerb")
        return handler()

    def _of_container(self, asked: Asked, container: str) -> Reply:
        if asked.method == "PUT":
            if container in self.containers:
                raise Refused("ContainerAlreadyExists")
            self.containers[container] = Container()
            return Reply(201)
        if container not in self.containers:
            raise Refused("ContainerNotFound")
        if asked.method == "DELETE":
            del self.containers[container]
            return Reply(202)
        return Reply(200)

    def _store(self, place: Container, name: str, body: bytes) -> Blob:
        tag = f"0x8DD{next(self._numbers):012X}"
        place.blobs[name] = Blob(body, tag, datetime.now(UTC).replace(microsecond=0))
        place.blocks.pop(name, None)
        return place.blobs[name]

    def _put_blob(self, asked: Asked, place: Container, name: str) -> Reply:
        if header(asked.headers, "x-ms-blob-type") != "BlockBlob":
            raise Refused("MissingRequiredHeader")
        self._check_write(asked, place.blobs.get(name))
        return Reply(201, self._store(place, name, asked.body).facts())

    def _put_block(self, asked: Asked, place: Container, name: str, query: dict[str, str]) -> Reply:
        number = query.get("blockid", "")
        try:
            length = len(base64.b64decode(number, validate=True))
        except ValueError:
            raise Refused("InvalidQueryParameterValue") from None
        blocks = place.blocks.setdefault(name, {})
        if not 0 < length <= 64 or any(len(other) != len(number) for other in blocks):
            raise Refused("InvalidBlobOrBlock")
        blocks[number] = asked.body
        return Reply(201)

    def _put_blocks(self, asked: Asked, place: Container, name: str) -> Reply:
        self._check_write(asked, place.blobs.get(name))
        blocks = place.blocks.get(name, {})
        listed = re.findall(r"<(?:Latest|Uncommitted)>([^<]*)</", asked.body.decode())
        if any(number not in blocks for number in listed) or b"<Committed>" in asked.body:
            raise Refused("InvalidBlockList")
        body = b"".join(blocks[number] for number in listed)
        return Reply(201, self._store(place, name, body).facts())

    def _check_write(self, asked: Asked, blob: Blob | None) -> None:
        if header(asked.headers, "if-none-match") == "*" and blob is not None:
            raise Refused("BlobAlreadyExists")
        wanted = header(asked.headers, "if-match")
        if wanted is not None and (blob is None or wanted not in ("*", f'"{blob.tag}"')):
            raise Refused("ConditionNotMet")

    def _get(self, asked: Asked, place: Container, name: str) -> Reply:
        blob = place.blobs.get(name)
        if blob is None:
            raise Refused("BlobNotFound")
        if (status := _condition(asked, blob)) == 412:
            raise Refused("ConditionNotMet")
        facts = [
            *blob.facts(),
            ("Content-Type", "application/octet-stream"),
            ("Accept-Ranges", "bytes"),
            ("x-ms-blob-type", "BlockBlob"),
        ]
        if status == 304:
            return Reply(304, facts)
        # A HEAD has no range, and says the whole length.
        text = header(asked.headers, "x-ms-range") or header(asked.headers, "range")
        if text is None or asked.method == "HEAD":
            reply = Reply(200, facts).with_body(blob.body)
            return reply if asked.method == "GET" else Reply(200, reply.headers)
        found = re.match(r"bytes=(\d+)-(\d*)$", text)
        if found is None:  # there are no ranges "bytes=-N" in Azure
            raise Refused("InvalidHeaderValue")
        first = int(found[1])
        last = min(int(found[2] or len(blob.body)), len(blob.body) - 1)
        if first >= len(blob.body) or first > last:
            raise Refused("InvalidRange")
        where = ("Content-Range", f"bytes {first}-{last}/{len(blob.body)}")
        return Reply(206, [*facts, where]).with_body(blob.body[first : last + 1])

    def _delete(self, asked: Asked, place: Container, name: str) -> Reply:
        if name not in place.blobs:
            raise Refused("BlobNotFound")
        self._check_write(asked, place.blobs[name])
        del place.blobs[name]
        return Reply(202)

    def _list(self, container: str, place: Container, query: dict[str, str]) -> Reply:
        prefix, delimiter = query.get("prefix", ""), query.get("delimiter", "")
        most = min(int(query.get("maxresults", MOST_LISTED)), MOST_LISTED)
        start = query.get("marker") or query.get("startFrom", "")
        items: dict[str, str] = {}
        for name in sorted(place.blobs):
            end = name.find(delimiter, len(prefix)) if delimiter else -1
            shown = name if end < 0 else name[: end + len(delimiter)]
            if name.startswith(prefix) and shown >= start:
                items.setdefault(shown, name)
        shown = list(items)
        listed = "".join(self._listed(one, place.blobs.get(one)) for one in shown[:most])
        more = escape(shown[most]) if len(shown) > most else ""
        text = (
            '<?xml version="1.0" encoding="utf-8"?>'
            f'<EnumerationResults ServiceEndpoint="{self.endpoint}" ContainerName="{container}">'
            f"<Prefix>{escape(prefix)}</Prefix><MaxResults>{most}</MaxResults>"
            f"<Delimiter>{escape(delimiter)}</Delimiter><Blobs>{listed}</Blobs>"
            f"<NextMarker>{more}</NextMarker></EnumerationResults>"
        )
        return Reply(200, [("Content-Type", "application/xml")]).with_body(text.encode())

    @staticmethod
    def _listed(name: str, blob: Blob | None) -> str:
        if blob is None:
            return f"<BlobPrefix><Name>{escape(name)}</Name></BlobPrefix>"
        # In listings, Azure's ETags have no quotes.
        return (
            f"<Blob><Name>{escape(name)}</Name><Properties>"
            f"<Last-Modified>{_date(blob.modified)}</Last-Modified><Etag>{blob.tag}</Etag>"
            f"<Content-Length>{len(blob.body)}</Content-Length>"
            "<Content-Type>application/octet-stream</Content-Type>"
            "<BlobType>BlockBlob</BlobType></Properties></Blob>"
        )

    def _batch(self, asked: Asked) -> Reply:
        """Deletions in one request, each signed by itself."""
        found = re.search(r"boundary=(\S+)", header(asked.headers, "content-type") or "")
        if found is None:
            raise Refused("InvalidHeaderValue")
        out: list[str] = []
        for part in asked.body.decode().split(f"--{found[1]}")[1:-1]:
            about, _, inner = part.strip("\r\n").partition("\r\n\r\n")
            number = re.search(r"(?i)content-id: *(\S+)", about)
            first, *lines = inner.split("\r\n")
            method, target, _ = first.split(" ")
            pairs = [line.partition(":")[::2] for line in lines if line]
            headers = [(name, value.strip()) for name, value in pairs]
            reply = self.answer(Asked(method, "/" + target.removeprefix("/"), headers))
            out.append(
                f"--answers\r\nContent-Type: application/http\r\n"
                f"Content-ID: {number[1] if number else 0}\r\n\r\n"
                + reply.encoded().decode()
                + reply.body.decode()
                + "\r\n"
            )
        text = "".join(out) + "--answers--\r\n"
        kind = ("Content-Type", "multipart/mixed; boundary=answers")
        return Reply(202, [kind]).with_body(text.encode())


def _condition(asked: Asked, blob: Blob) -> int:
    """412 or 304 if a condition of a read does not hold, else 0."""
    tag = f'"{blob.tag}"'
    wanted, unwanted = header(asked.headers, "if-match"), header(asked.headers, "if-none-match")
    if wanted is not None and wanted not in ("*", tag):
        return 412
    before = header(asked.headers, "if-unmodified-since")
    if before is not None and blob.modified > parsedate_to_datetime(before):
        return 412
    if unwanted is not None and unwanted in ("*", tag):
        return 304
    after = header(asked.headers, "if-modified-since")
    return 304 if after is not None and blob.modified <= parsedate_to_datetime(after) else 0


def _date(when: datetime) -> str:
    return format_datetime(when, usegmt=True)


@contextmanager
def azure() -> Generator[Azure]:
    """Run the server in threads of this process."""
    state = Azure()
    with answering(state.answer) as state.endpoint:
        yield state
