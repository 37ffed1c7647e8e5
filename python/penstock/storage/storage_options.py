"""`storage_options=`: options of the client of an object store, some of which are secrets.

Secrets are never shown. A pickle has where they come from, such as the environment, but not their values, unless the
user allows it with `"pickle_secrets": True`. While `multiprocessing` starts a child process, they are passed on to it,
as Python does with its own AuthenticationString.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from penstock.errors import UnsupportedError

_SECRET = re.compile(r"secret|token|password|sas|credential|key|proxy|authorization")
_PUBLIC = re.compile(r"key_id$|credentials_file|application_credentials$|^pickle_secrets$|endpoint")
_PICKLES = "pickle_secrets"
_DEADLINE = "deadline"
_STALL_SECONDS = 10.0
"""After so long without a byte, a request is made again."""


class StorageOptions(Mapping[str, str]):
    """Options by name, in lower case. Numbers and bools are converted to text, as the client takes them.

    Example:
        >>> from penstock.storage.storage_options import StorageOptions
        >>> StorageOptions({"aws_region": "eu-west-1", "aws_secret_access_key": "abc"})
        {'aws_region': 'eu-west-1', 'aws_secret_access_key': '…'}
    """

    def __init__(self, options: Mapping[str, Any] | None = None) -> None:
        given = dict(options or {})
        for name, value in given.items():
            if not isinstance(value, (str, bool, int, float)):
                kind = type(value).__name__
                raise TypeError(
                    f"storage_options[{name!r}] must be text, a number or a bool, not {kind}"
                )
        self._values = {name.lower(): _text(value) for name, value in given.items()}
        self.pickles_secrets = self._values.pop(_PICKLES, "false") == "true"
        self._deadline = _seconds(self._values.pop(_DEADLINE, None))

    @property
    def times(self) -> dict[str, Any]:
        """How long the client waits, as it takes it: for one piece of work, and for the next byte."""
        if self._deadline is None:
            return {}
        return {"deadline_s": self._deadline, "stall_s": min(_STALL_SECONDS, self._deadline)}

    def __getitem__(self, name: str) -> str:
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:
        return repr({n: "…" if _is_secret(n) else v for n, v in self._values.items()})

    def refuse_signed(self) -> None:
        """Raise UnsupportedError where secrets must not be pickled, because names of files are signed addresses."""
        if not self.pickles_secrets and not _starts_a_child():
            raise UnsupportedError(
                "the addresses of the data are signed, and such secrets are not written into a pickle",
                hint='names without a signature, or storage_options={"pickle_secrets": True}',
            )

    def __reduce__(self) -> tuple[Any, ...]:
        secrets = sorted(filter(_is_secret, self._values))
        if secrets and not self.pickles_secrets and not _starts_a_child():
            raise UnsupportedError(
                f"the data was opened with secrets ({', '.join(secrets)}), which are not written into a pickle",
                hint="AWS_SECRET_ACCESS_KEY and its like in the environment, or "
                'storage_options={…, "pickle_secrets": True}',
            )
        own: dict[str, Any] = {_PICKLES: self.pickles_secrets}
        if self._deadline is not None:
            own[_DEADLINE] = self._deadline
        return StorageOptions, ({**self._values, **own},)


def _seconds(text: str | None) -> float | None:
    if text is None:
        return None
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < float("inf"):
        raise ValueError(
            f'storage_options["deadline"] must be a positive number of seconds, not {text!r}'
        )
    return seconds


def refuse_secrets(made_of: object) -> None:
    """Raise UnsupportedError if what another library would pickle has secrets, unless a child process is started."""
    secrets = sorted(set(_secrets_in(made_of)))
    if secrets and not _starts_a_child():
        raise UnsupportedError(
            f"storage= has secrets ({', '.join(secrets)}), which are not written into a pickle",
            hint="keys in the environment, or s3://bucket/key with storage_options= instead of storage=",
        )


def _secrets_in(value: object) -> Iterator[str]:
    """The names of secrets in nested dicts and tuples."""
    if isinstance(value, Mapping):
        for name, inner in value.items():
            if isinstance(inner, str) and inner and _is_secret(str(name).lower()):
                yield str(name)
            yield from _secrets_in(inner)
    elif isinstance(value, (tuple, list)):
        for inner in value:
            yield from _secrets_in(inner)


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _is_secret(name: str) -> bool:
    return _SECRET.search(name) is not None and _PUBLIC.search(name) is None


def _starts_a_child() -> bool:
    """Whether `multiprocessing` is starting a process, and so pickles for this one only."""
    import multiprocessing.context  # slow to import, and rarely needed

    return multiprocessing.context.get_spawning_popen() is not None
