"""A small S3 client for tests: it signs requests, and shows each answer as it came.

What is tested is penstock's own client, so the tests put objects in place with another one.
"""

from __future__ import annotations

import hashlib
import hmac
import http.client
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from urllib.parse import quote, urlsplit
from xml.sax.saxutils import unescape

REGION = "us-east-1"
NO_BODY = hashlib.sha256(b"").hexdigest()


@dataclass(frozen=True)
class Answer:
    """The answer to one request. Names of headers are in lower case."""

    status: int
    headers: dict[str, str]
    body: bytes


def request(
    method: str,
    url: str,
    headers: Mapping[str, str] | None = None,
    body: bytes = b"",
    timeout: float = 30,
) -> Answer:
    """One HTTP request on a connection of its own."""
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(str(parts.hostname), parts.port, timeout=timeout)
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    try:
        connection.request(method, target, body or None, dict(headers or {}))
        answer = connection.getresponse()
        content = answer.read()
        return Answer(answer.status, {k.lower(): v for k, v in answer.getheaders()}, content)
    finally:
        connection.close()


class S3Error(RuntimeError):
    """An answer that is not a success."""

    def __init__(self, answer: Answer) -> None:
        super().__init__(f"{answer.status}: {answer.body[:500].decode('utf-8', 'replace')}")
        self.answer = answer


@dataclass(frozen=True)
class S3:
    """A client of one endpoint. Without keys its requests are anonymous."""

    endpoint: str
    key_id: str | None = None
    secret: str | None = None

    def call(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        body: bytes = b"",
    ) -> Answer:
        """A signed request; `path` is "bucket" or "bucket/key", not encoded."""
        line = "&".join(f"{_encoded(k)}={_encoded(v)}" for k, v in sorted((query or {}).items()))
        target = "/" + quote(path, safe="/-_.~")
        signed = self.signed(method, target, line, headers or {}, body)
        return request(
            method, f"{self.endpoint}{target}" + (f"?{line}" if line else ""), signed, body
        )

    def done(self, method: str, path: str, **more: object) -> Answer:
        """The same, for requests that must succeed."""
        answer = self.call(method, path, **more)  # pyright: ignore[reportArgumentType]
        if answer.status >= 300:
            raise S3Error(answer)
        return answer

    def signed(
        self, method: str, target: str, query: str, headers: Mapping[str, str], body: bytes = b""
    ) -> dict[str, str]:
        """The headers of a request, with the signature (AWS Signature Version 4)."""
        given = {name.lower(): value for name, value in headers.items()}
        if self.key_id is None or self.secret is None:
            return given
        now = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
        digest = hashlib.sha256(body).hexdigest()
        given |= {
            "host": urlsplit(self.endpoint).netloc,
            "x-amz-date": now,
            "x-amz-content-sha256": digest,
        }
        names = ";".join(sorted(given))
        lines = "".join(f"{name}:{given[name].strip()}\n" for name in sorted(given))
        asked = f"{method}\n{target}\n{query}\n{lines}\n{names}\n{digest}"
        scope = f"{now[:8]}/{REGION}/s3/aws4_request"
        given["authorization"] = (
            f"AWS4-HMAC-SHA256 Credential={self.key_id}/{scope}, "
            f"SignedHeaders={names}, Signature={self._signature(now, scope, asked)}"
        )
        return given

    def presigned(self, path: str, seconds: int = 600) -> str:
        """An address with which anyone may read an object for a while."""
        now = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
        scope = f"{now[:8]}/{REGION}/s3/aws4_request"
        target = "/" + quote(path, safe="/-_.~")
        asked_for = {
            "X-Amz-Algorithm": "AWS4-HMAC-SHA256",
            "X-Amz-Credential": f"{self.key_id}/{scope}",
            "X-Amz-Date": now,
            "X-Amz-Expires": str(seconds),
            "X-Amz-SignedHeaders": "host",
        }
        query = "&".join(f"{k}={_encoded(v)}" for k, v in sorted(asked_for.items()))
        host = urlsplit(self.endpoint).netloc
        asked = f"GET\n{target}\n{query}\nhost:{host}\n\nhost\nUNSIGNED-PAYLOAD"
        signature = self._signature(now, scope, asked)
        return f"{self.endpoint}{target}?{query}&X-Amz-Signature={signature}"

    def _signature(self, now: str, scope: str, asked: str) -> str:
        digest = hashlib.sha256(asked.encode()).hexdigest()
        key = f"AWS4{self.secret}".encode()
        for part in scope.split("/"):
            key = hmac.digest(key, part.encode(), "sha256")
        text = f"AWS4-HMAC-SHA256\n{now}\n{scope}\n{digest}"
        return hmac.digest(key, text.encode(), "sha256").hex()

    # -- what most tests need ---------------------------------------------------------------------

    def put(self, path: str, body: bytes, **headers: str) -> str:
        """Write an object; its ETag. Headers are spelt with _, as in `if_none_match`."""
        return self.done("PUT", path, headers=_spelt(headers), body=body).headers["etag"]

    def get(self, path: str, **headers: str) -> bytes:
        """Read an object, or `range="bytes=0-9"` of it."""
        return self.done("GET", path, headers=_spelt(headers)).body

    def delete(self, path: str) -> None:
        """Remove an object or a bucket."""
        self.done("DELETE", path)

    def make_bucket(self, name: str) -> None:
        """Make a bucket, which must be new."""
        self.done("PUT", name)

    def keys(self, bucket: str, prefix: str = "") -> list[str]:
        """The keys of a bucket, of all pages."""
        found: list[str] = []
        query = {"list-type": "2", "prefix": prefix}
        while True:
            text = self.done("GET", bucket, query=query).body.decode()
            found += [unescape(key) for key in re.findall("<Key>([^<]*)</Key>", text)]
            more = re.search("<NextContinuationToken>([^<]*)<", text)
            if more is None:
                return found
            query["continuation-token"] = unescape(more[1])

    def uploads(self, bucket: str) -> list[str]:
        """The keys of multipart uploads that were neither completed nor aborted."""
        text = self.done("GET", bucket, query={"uploads": ""}).body.decode()
        return re.findall("<Upload>.*?<Key>([^<]*)</Key>", text, re.DOTALL)


def _spelt(headers: Mapping[str, str]) -> dict[str, str]:
    return {name.replace("_", "-"): value for name, value in headers.items()}


def _encoded(text: str) -> str:
    return quote(text, safe="-_.~")
