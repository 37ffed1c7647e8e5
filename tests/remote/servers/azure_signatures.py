"""How Azure's requests are signed: by the account's key, or by a shared access signature in the query."""

from __future__ import annotations

import base64
import hmac
from collections import defaultdict
from collections.abc import Collection
from datetime import UTC, datetime
from urllib.parse import parse_qsl, quote

from remote.servers.http1 import Asked, header

ACCOUNT = "penstocktests"
KEY = base64.b64encode(b"a key that only the tests of penstock know").decode()
VERSION = "2023-11-03"
SIGNED_HEADERS = [
    "content-encoding", "content-language", "content-length", "content-md5", "content-type",
    "date", "if-modified-since", "if-match", "if-none-match", "if-unmodified-since", "range",
]  # fmt: skip
NEEDED = {"GET": "r", "HEAD": "r", "PUT": "w", "POST": "", "DELETE": "d"}


def signature(text: str) -> str:
    """The signature of a text by the account's key."""
    return base64.b64encode(hmac.digest(base64.b64decode(KEY), text.encode(), "sha256")).decode()


def shared_key(asked: Asked) -> str:
    """The value of the Authorization header of a request."""
    return f"SharedKey {ACCOUNT}:{signature(text_to_sign(asked, ACCOUNT))}"


def text_to_sign(asked: Asked, account: str) -> str:
    """What is signed of a request."""
    values = [header(asked.headers, name) or "" for name in SIGNED_HEADERS]
    if values[2] == "0":
        values[2] = ""
    if header(asked.headers, "x-ms-date") is not None:
        values[5] = ""
    own = sorted(
        (name.lower(), " ".join(value.split()))
        for name, value in asked.headers
        if name.lower().startswith("x-ms-")
    )
    parameters: defaultdict[str, list[str]] = defaultdict(list)
    for name, value in parse_qsl(asked.query, keep_blank_values=True):
        parameters[name.lower()].append(value)
    text = "\n".join([asked.method, *values, ""])
    text += "".join(f"{name}:{value}\n" for name, value in own)
    text += f"/{account}{asked.target.partition('?')[0]}"
    return text + "".join(
        f"\n{name}:{','.join(sorted(parameters[name]))}" for name in sorted(parameters)
    )


def account_sas(permissions: str, expires: datetime) -> str:
    """A signature that lets its holder do things to the account's blobs until it expires."""
    end = expires.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    fields = {"sv": VERSION, "ss": "b", "srt": "sco", "sp": permissions, "se": end}
    fields["sig"] = signature(_account_text(fields))
    return "&".join(f"{name}={quote(value, safe='')}" for name, value in fields.items())


def _account_text(fields: dict[str, str]) -> str:
    names = ["sp", "ss", "srt", "st", "se", "sip", "spr", "sv", "ses"]
    return "\n".join([ACCOUNT, *(fields.get(name, "") for name in names), ""])


def _service_text(asked: Asked, fields: dict[str, str]) -> str:
    path = asked.target.partition("?")[0]
    parts = path.removeprefix(f"/{ACCOUNT}/").removeprefix("/")
    if fields["sr"] == "c":
        parts = parts.partition("/")[0]
    names = [
        "si", "sip", "spr", "sv", "sr", "snapshot", "ses", "rscc", "rscd", "rsce", "rscl", "rsct",
    ]  # fmt: skip
    return "\n".join(
        [
            *(fields.get(name, "") for name in ("sp", "st", "se")),
            f"/blob/{ACCOUNT}/{parts}",
            *(fields.get(name, "") for name in names),
        ]
    )


def refusal(asked: Asked, tokens: Collection[str] = ()) -> str | None:
    """The code of the error, if a request may not be done."""
    given = header(asked.headers, "authorization")
    if given is not None:
        right = given.removeprefix("Bearer ") in tokens or hmac.compare_digest(
            given, shared_key(asked)
        )
        return None if right else "AuthenticationFailed"
    fields = dict(parse_qsl(asked.query, keep_blank_values=True))
    if "sig" not in fields:
        return "NoAuthenticationInformation"
    text = _service_text(asked, fields) if "sr" in fields else _account_text(fields)
    if not hmac.compare_digest(fields["sig"], signature(text)) or _expired(fields.get("se", "")):
        return "AuthenticationFailed"
    needed = "l" if fields.get("comp") == "list" else NEEDED.get(asked.method, "")
    allowed = set(needed) <= set(fields.get("sp", "")) or (needed == "w" and "c" in fields["sp"])
    return None if allowed else "AuthorizationPermissionMismatch"


def _expired(end: str) -> bool:
    try:
        return datetime.fromisoformat(end) < datetime.now(UTC)
    except (ValueError, TypeError):
        return True
