"""What can go wrong between a store and its reader: each fault by itself, and the rules of when it happens.

`FaultProxy` of `fault_proxy.py` stands in front of any server of this folder and does them.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Literal

from remote.servers.http1 import Asked, Reply

FOR_EVER = 3600.0


@dataclass(frozen=True)
class Fault:
    """One fault. Build it with a function below."""

    name: str
    before: Callable[[Asked], object] | None = None
    """Called before the request goes to the store."""
    ask: Callable[[Asked], Asked] | None = None
    """What to ask the store instead."""
    answer: Callable[[Asked], Reply] | None = None
    """Answers without asking the store."""
    change: Callable[[Reply], Reply] | None = None
    """Changes the store's answer."""
    wait: float = 0.0
    """Seconds before the first byte of the answer."""
    share: float | None = None
    """Part of the answer's body that is sent before it breaks off; negative: not even its head."""
    upload_share: float | None = None
    """Part of the request's body that reaches the store before both connections break."""
    ends: Literal["reset", "close", "stall"] = "reset"
    stalls: float = FOR_EVER


def reset(share: float = 0.5) -> Fault:
    """The connection is reset in the middle of the body."""
    return Fault("reset", share=share)


def close_early(share: float = 0.5) -> Fault:
    """The connection is closed in good order, with part of the promised body missing."""
    return Fault("close_early", share=share, ends="close")


def stall(share: float = 0.5, seconds: float = FOR_EVER) -> Fault:
    """Nothing more comes after part of the body, and the connection stays open."""
    return Fault("stall", share=share, ends="stall", stalls=seconds)


def refused() -> Fault:
    """The connection is reset before the store has seen the request."""
    return Fault("refused", upload_share=0.0)


def lost_answer() -> Fault:
    """The store does what it was asked, and the connection is reset before it can say so."""
    return Fault("lost_answer", share=-1.0)


def silence(seconds: float = FOR_EVER) -> Fault:
    """The store does what it was asked, and its answer does not come."""
    return Fault("silence", share=-1.0, ends="stall", stalls=seconds)


def cut_upload(share: float = 0.5) -> Fault:
    """The connection is reset while the client sends a body."""
    return Fault("cut_upload", upload_share=share)


def slow(seconds: float) -> Fault:
    """The first byte of the answer comes late."""
    return Fault("slow", wait=seconds)


def status(number: int, code: str, *, retry_after: int | None = None) -> Fault:
    """An S3 error in place of an answer, such as `status(503, "SlowDown", retry_after=1)`."""
    text = f'<?xml version="1.0" encoding="UTF-8"?><Error><Code>{code}</Code><Message>x</Message></Error>'
    reply = Reply(number, [("Content-Type", "application/xml")]).with_body(text.encode())
    if retry_after is not None:
        reply = reply.with_header("Retry-After", str(retry_after))
    return Fault(f"status {number} {code}", answer=lambda _: reply)


def unavailable(retry_after: int | None = 0) -> Fault:
    """503 SlowDown. With `times=` in the rule it is a storm."""
    return status(503, "SlowDown", retry_after=retry_after)


def too_many(retry_after: int | None = 0) -> Fault:
    """429."""
    return status(429, "TooManyRequests", retry_after=retry_after)


def timed_out() -> Fault:
    """408."""
    return status(408, "RequestTimeout")


def expired() -> Fault:
    """403: the credentials have expired."""
    return status(403, "ExpiredToken")


def redirect_loop() -> Fault:
    """A redirect to the same address."""

    def answer(asked: Asked) -> Reply:
        return Reply(302, [("Location", asked.target)]).with_body(b"")

    return Fault("redirect_loop", answer=answer)


def short_body(share: float = 0.5) -> Fault:
    """Part of the body with a Content-Length that fits it, and the Content-Range of all of it.

    With `query="list-type"` in the rule it is a truncated listing.
    """
    return _of_body("short_body", lambda body: body[: int(len(body) * share)])


def long_body(extra: int = 1000) -> Fault:
    """More bytes than the Content-Range says, with a Content-Length that fits them."""
    return _of_body("long_body", lambda body: body + bytes(extra))


def damaged(at: float = 0.5) -> Fault:
    """One bit of the body is another one."""

    def change(body: bytes) -> bytes:
        place = min(int(len(body) * at), len(body) - 1)
        return body[:place] + bytes([body[place] ^ 1]) + body[place + 1 :]

    return _of_body("damaged", change)


def _of_body(name: str, change: Callable[[bytes], bytes]) -> Fault:
    return Fault(
        name, change=lambda reply: reply.with_body(change(reply.body)) if reply.body else reply
    )


def shifted_range(by: int = 1) -> Fault:
    """The Content-Range is one byte off; the body is the right one."""

    def change(reply: Reply) -> Reply:
        found = re.match(r"bytes (\d+)-(\d+)/(.*)", reply.header("content-range") or "")
        if not found:
            return reply
        text = f"bytes {int(found[1]) + by}-{int(found[2]) + by}/{found[3]}"
        return reply.with_header("Content-Range", text)

    return Fault("shifted_range", change=change)


def whole_object() -> Fault:
    """200 and all of the object for a range.

    Clients of S3 sign the range, so the proxy needs `keys=` to sign the request anew. Clients of
    Azure that use the account's key sign it too; they need a shared access signature here.
    """

    def ask(asked: Asked) -> Asked:
        kept = [pair for pair in asked.headers if pair[0].lower() != "range"]
        return Asked(asked.method, asked.target, kept, asked.body)

    return Fault("whole_object", ask=ask)


def other_tag(tag: str | None = '"another"') -> Fault:
    """Another ETag, or none."""
    return Fault("other_tag", change=lambda reply: reply.with_header("ETag", tag))


def call(callback: Callable[[Asked], object], name: str = "call") -> Fault:
    """Call this before the store is asked: to replace the object, or to wait."""
    return Fault(name, before=callback)


@dataclass
class Rule:
    """When a fault happens: at requests that fit all that is given here."""

    fault: Fault
    method: str | None = None
    key: str | None = None
    """A pattern (`re.search`) in the decoded path, such as "/bucket/part-3"."""
    query: str | None = None
    """A pattern in the query; "" is in all of them."""
    ranged: bool | None = None
    nth: Collection[int] | None = None
    """Which of the fitting requests, from 1."""
    times: int | None = None
    """How often at most."""
    probability: float = 1.0
    seed: int = 0
    fitting: int = 0
    """Requests that fitted so far."""
    fired: int = 0
    """Faults that happened so far."""
    _same: Counter[str] = field(default_factory=Counter, repr=False)

    def happens(self, asked: Asked) -> bool:
        """Whether the fault happens at this request. It counts the request."""
        if not self._fits(asked):
            return False
        self.fitting += 1
        if self.nth is not None and self.fitting not in self.nth:
            return False
        if self.times is not None and self.fired >= self.times:
            return False
        if self.probability < 1 and self._chance(asked) >= self.probability:
            return False
        self.fired += 1
        return True

    def _fits(self, asked: Asked) -> bool:
        return (
            (self.method is None or self.method == asked.method)
            and (self.key is None or re.search(self.key, asked.path) is not None)
            and (self.query is None or re.search(self.query, asked.query) is not None)
            and (self.ranged is None or self.ranged == (asked.range is not None))
        )

    def _chance(self, asked: Asked) -> float:
        # By what is asked and how often it was, so that a seed means the same whichever of several
        # requests comes first.
        what = f"{asked.method} {asked.target} {asked.range}"
        self._same[what] += 1
        text = f"{self.seed} {self.fault.name} {what} {self._same[what]}"
        return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest()) / 2**64
