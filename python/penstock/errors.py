"""Errors about data: exception types for programs, and messages that help people to fix the problem.

Low-level code raises an error with the facts that it knows (byte, expected, found), and its callers add others with
`at` (record, file). `OSError` is not converted, because a missing file is not damaged data.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from typing import Self


def command(*words: str) -> str:
    """Format a shell command for hints. Words with blanks are quoted, and a name that begins with "-" gets a "./"."""
    import shlex  # slow to import, and rarely needed

    return shlex.join(word if _is_plain(word) else f"./{word}" for word in words)


def _is_plain(word: str) -> bool:
    """Whether a word is an option, such as --in-place, or cannot be mistaken for one."""
    return not word.startswith("-") or word[2:].replace("-", "").isalpha()


def shown(path: str) -> str:
    """A name for messages: without the query of a web address, which may be a signature, and without user and
    password."""
    scheme, mark, rest = path.partition("://")
    if not mark or scheme.lower() not in ("http", "https"):
        return path
    bare, query, _ = rest.partition("?")
    host, slash, key = bare.partition("/")
    address = f"{scheme}://{host.rpartition('@')[2]}{slash}{key}"
    return f"{address}?…" if query else address


def known_as(error: BaseException, is_hidden: Callable[[str], bool], name: str) -> None:
    """Give an error the name of a file that the caller knows, if it names the hidden file that is written first."""
    for word in ("file", "filename"):
        found = getattr(error, word, None)
        if isinstance(found, str) and is_hidden(found):
            setattr(error, word, name)


def no_folder(number: int | None, folder: str, path: str) -> Exception:
    """The error for a file that cannot be created because its folder is missing. `number` is the errno."""
    if "://" in path:
        return not_local(path)
    return FileNotFoundError(number, "no such folder", folder)


def not_local(path: str) -> UnsupportedError:
    """The error for files that are not on this machine."""
    hint = "write to a file on this machine, and upload it"
    if path.startswith("file://"):
        hint = "the path without file://"
    return UnsupportedError(
        "this can be done with files on this machine only", file=path, hint=hint
    )


_PLACE = ("record", "field", "byte")
_VALUES = ("expected", "found")
_FIELDS = ("file", *_PLACE, *_VALUES, "hint")


class PenstockError(Exception):
    """Base class of all errors that penstock raises about data.

    Attributes: file (str), record (int, from 0), field (str), byte (int, offset in the file, or in the decompressed
    stream of a compressed file), expected, found, hint (str). Each is None if unknown.

    Example:
        >>> import penstock as ps
        >>> error = ps.ChecksumError("data checksum does not match", byte=12)
        >>> print(error.at(file="a.tfrecord", record=0))
        a.tfrecord: record 0, byte 12: data checksum does not match
    """

    row: int | None = None
    """The number of the record of a view that cannot be read, where `record` is one of the records that it is made
    of."""

    def __init__(
        self,
        message: str,
        *,
        file: str | None = None,
        record: int | None = None,
        field: str | None = None,
        byte: int | None = None,
        expected: object = None,
        found: object = None,
        hint: str | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.file = None if file is None else shown(file)
        self.record = record
        self.field = field
        self.byte = byte
        self.expected = expected
        self.found = found
        self.hint = hint

    def at(self, **facts: Any) -> Self:
        """Set facts that are still unknown. Returns the error itself."""
        for name, value in facts.items():
            if name not in _FIELDS:
                raise TypeError(f"unknown fact {name!r}; known: {', '.join(_FIELDS)}")
            if getattr(self, name) is None:
                setattr(self, name, shown(value) if name == "file" and value else value)
        return self

    def facts(self) -> dict[str, object]:
        """The known facts, by name."""
        return {name: value for name in _FIELDS if (value := getattr(self, name)) is not None}

    def __str__(self) -> str:
        known = self.facts()
        if self.field is not None:
            known["field"] = repr(self.field)
        place = ", ".join(f"{word} {known[word]}" for word in _PLACE if word in known)
        lines = [": ".join(filter(None, (self.file, place, self.message)))]
        values = ", ".join(f"{word} {known[word]}" for word in _VALUES if word in known)
        if values:
            lines.append(f"  {values}")
        if self.hint is not None:
            lines.append(f"  try: {self.hint}")
        return "\n".join(lines)

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), self.message, {n: getattr(self, n) for n in _FIELDS})


def raise_unless_damage(error: Exception) -> None:
    """Raise an error that is not about the bytes of a file: they could not be read, or were changed meanwhile."""
    if isinstance(error, (StorageError, ChangedError)):
        raise error


def _rebuild(kind: type[PenstockError], message: str, facts: dict[str, Any]) -> PenstockError:
    return kind(message, **facts)


class FormatError(PenstockError, ValueError):
    """The bytes violate the rules of their format."""


class TruncatedError(FormatError):
    """The data ends before its announced end."""


class ChecksumError(FormatError):
    """A stored checksum does not match the bytes."""


class LimitError(FormatError):
    """A declared size exceeds a limit. The message names the limit, and the hint shows how to raise it. If `of_batch`,
    a batch has too many records, and smaller batches can be read."""

    of_batch = False


def batch_limit(message: str, **facts: Any) -> LimitError:
    """The error for a batch with too many records."""
    facts.setdefault("hint", "fewer records at once: a smaller batch_size, batch_records or take")
    error = LimitError(message, **facts)
    error.of_batch = True
    return error


class SchemaError(PenstockError, ValueError):
    """A record does not fit the schema. `lacks` has the columns that a file does not have, if that is the reason."""

    lacks: tuple[str, ...] = ()


class StaleIndexError(PenstockError):
    """The index or an overlay belongs to another state of the file."""


class ChangedError(PenstockError):
    """The file has changed or been replaced since it was opened."""


class RecordIndexError(PenstockError, IndexError):
    """No record has this number."""


class UnsupportedError(PenstockError, NotImplementedError):
    """The data is valid, but penstock cannot read or write it."""


class StateError(PenstockError, ValueError):
    """The state of a loader belongs to another dataset."""


class StorageError(PenstockError, OSError):
    """An object store failed, or did not answer in time. The message has the bytes that were requested, the number of
    attempts and the last cause."""


class InternalError(PenstockError):
    """A bug in penstock. Please report it, with the file if you are allowed to share it."""
