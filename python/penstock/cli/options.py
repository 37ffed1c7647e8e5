"""The options that commands share, and their translation to keywords of `penstock.open`."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Callable, Collection, Generator, Sequence
from contextlib import contextmanager
from itertools import chain
from typing import TYPE_CHECKING, Any, TypeVar

import click

from penstock.cli.stores import storage_option
from penstock.cli.words import PATH, size_of

if TYPE_CHECKING:
    import penstock as ps

Function = TypeVar("Function", bound=Callable[..., Any])


class _Names(click.ParamType):  # pyright: ignore[reportMissingTypeArgument]  generic from click 8.2
    name = "name,name,…"

    def convert(self, value: Any, param: Any, ctx: Any) -> list[str]:
        if isinstance(value, list):
            return value
        names = [name.strip() for name in str(value).split(",")]
        if not all(names):
            self.fail(f"{value!r} has an empty name", param, ctx)
        return names


class _Extent(click.ParamType):  # pyright: ignore[reportMissingTypeArgument]  as above
    name = "n|all"

    def convert(self, value: Any, param: Any, ctx: Any) -> int | str:
        if value == "all" or isinstance(value, int):
            return value
        try:
            number = int(value)
        except ValueError:
            number = 0
        if number < 1:
            self.fail(f"{value!r} is neither a number of records nor 'all'", param, ctx)
        return number


class _Damage(click.Choice):  # pyright: ignore[reportMissingTypeArgument]  as above
    def convert(self, value: Any, param: Any, ctx: Any) -> Any:
        if value == "salvage":
            self.fail(
                "reading does not salvage; `penstock repair --salvage` writes a file with what can be saved",
                param,
                ctx,
            )
        return super().convert(value, param, ctx)


NAMES = _Names()
_OPTION_ERROR = re.compile(r"has no option|files are not compressed|: option \w+ is ")

_OF_NAMES = re.compile(
    r"no such (column|field); |already have this field|would have (this|the same) name"
    r"|cannot be compared with"
)
"""Messages about a name or a condition on the command line, not about the data."""

_SECOND_NAME = re.compile(r",\s*\w+=(?!=)")
"""A comma and another name, where --with takes one expression."""

_READING: dict[str, Callable[[Any], Any]] = {
    "format": click.option(
        "--format", help="Format of the files. [default: detected from content]"
    ),
    "read": click.option(
        "--read",
        multiple=True,
        metavar="NAME=VALUE",
        help="An option of the format that is read.",
    ),
    "computed": click.option(
        "--with",
        "computed",
        multiple=True,
        metavar="NAME=EXPRESSION",
        help="One more field, such as caption=json.caption or ratio='width / height'.",
    ),
    "columns": click.option(
        "--columns", type=NAMES, metavar="NAME,NAME,…", help="Only these fields, in this order."
    ),
    "types": click.option(
        "--cast",
        "types",
        type=NAMES,
        metavar="NAME=TYPE,…",
        help="Other types for some fields, such as caption=string,label=int32.",
    ),
    "text": click.option(
        "--text",
        type=NAMES,
        metavar="NAME,…|auto",
        help="Fields of bytes to write as text; auto: the fields that are text in all records.",
    ),
    "hive": click.option(
        "--hive/--no-hive",
        default=None,
        help="Folders named key=value give columns of these names. [default: only if the source is a folder "
        "and all its files are in such folders]",
    ),
    "raw": click.option(
        "--raw", is_flag=True, help="Read undecoded payloads, as one column 'record'."
    ),
    "checksums": click.option(
        "--checksums",
        type=click.Choice(["all", "headers", "none", "index"]),
        default="all",
        show_default=True,
        help="Which checksums to verify; index: also the checksums of `penstock index --checksums`.",
    ),
    "damage": click.option(
        "--damage",
        type=_Damage(["error", "stop", "skip"]),
        default="error",
        show_default=True,
        help="What to do at damaged bytes: fail, read up to them, or skip them.",
    ),
    "index": click.option(
        "--index",
        default="auto",
        show_default=True,
        metavar="auto|beside|never|FOLDER",
        help="Where indexes are stored: in your cache (or next to the data if one is there already), always "
        "next to the data, nowhere, or in a folder.",
    ),
    "overlays": click.option(
        "--overlays",
        type=PATH,
        metavar="FOLDER",
        help="A folder with more overlays of these files, which are applied after those next to the files.",
    ),
    "limits": click.option(
        "--limit",
        "limits",
        multiple=True,
        metavar="NAME=SIZE",
        callback=lambda context, option, words: _limits(words),
        help="Change a limit on the memory that a file may make penstock use, such as record_bytes=2GiB.",
    ),
    "missing_shards": click.option(
        "--allow-missing",
        "missing_shards",
        is_flag=True,
        callback=lambda context, option, given: "ignore" if given else "error",
        help="Read the shards that exist of a numbered set that lacks some.",
    ),
    "threads": click.option(
        "--threads", type=click.IntRange(min=1), help="Number of threads. [default: one per core]"
    ),
    "dialect": click.option(
        "--dialect",
        type=click.Choice(["protobuf", "tensorflow"]),
        default="protobuf",
        show_default=True,
        help="Whose rules apply to unusual encodings of Examples.",
    ),
    "storage_options": storage_option,
    "infer": click.option(
        "--infer",
        type=_Extent(),
        metavar="N|all",
        help="Number of records of the first file to infer the fields of Examples from. [default: 1000]",
    ),
}


OF_RECORDS = (
    "format",
    "read",
    "computed",
    "columns",
    "types",
    "text",
    "hive",
    "raw",
    "checksums",
    "damage",
    "index",
    "overlays",
    "limits",
    "threads",
    "dialect",
    "infer",
    "missing_shards",
)
"""The reading options of every command that writes the records that it reads."""


def _limits(words: Sequence[str]) -> dict[str, int] | None:
    """Return limits by name. Sizes may end in KiB, MiB, GiB or TiB (or k, M, G, T for the same)."""
    found: dict[str, int] = {}
    for name, text in pairs_of(words, "--limit").items():
        size = size_of(text)
        if size is None:
            raise click.UsageError(f"--limit: {text!r} is not a size such as 2GiB")
        found[name] = size
    import penstock as ps

    try:
        ps.Limits(**found)
    except TypeError:
        known = ", ".join(ps.Limits.__dataclass_fields__)
        raise click.UsageError(f"--limit: known limits are {known}") from None
    return found or None


def reading(*names: str) -> Callable[[Function], Function]:
    """Add the named reading options to a command."""

    def add(function: Function) -> Function:
        for name in reversed(names):
            function = _READING[name](function)
        return function

    return add


def is_reading(option: click.Option) -> bool:
    """Whether this is one of the shared reading options, which are keywords of `penstock.open`."""

    @click.command()
    @reading(*(name for name in _READING if name == option.name))
    def shared() -> None: ...

    return any(
        isinstance(one, click.Option) and (one.opts, one.is_flag) == (option.opts, option.is_flag)
        for one in shared.params
    )


_source = click.argument("source", nargs=-1, required=True, type=PATH, metavar="SOURCE...")


def source_argument(function: Function) -> Function:
    """Add the argument SOURCE, and the option for the store that it may be in."""
    return _source(storage_option(function))


json_option = click.option(
    "--json", "as_json", is_flag=True, help="Print one JSON document on stdout, nothing else."
)


where_option = click.option(
    "--where",
    metavar="CONDITION",
    help="Only the records for which this is true: 'label >= 3 and len(name) < 9'.",
)


def names_in(where: str | None) -> set[str]:
    """The words of a condition that may be names of fields."""
    return set(chain(*re.findall(r"`([^`]+)`|([^\W\d][\w./-]*)", where or "")))


def filtered(ds: ps.Dataset, where: str | None) -> ps.Dataset:
    """The records for which a condition is true, or all records if there is no condition."""
    if where is None:
        return ds
    with misuse(named=names_in(where)):
        return ds.filter(where)


class Misuse(click.UsageError):
    """An error about an argument of the API, which is an option here. `field` is the field that it names."""

    field: str | None = None


@contextmanager
def misuse(*, has_read: bool = False, named: Collection[str] = ()) -> Generator[None]:
    """Turn the API's errors about its arguments into errors about options.

    Errors about the data stay as they are. So does a TypeError that is not about an option, nor about a value of --read
    (`has_read`), since it is a bug of penstock. `named` lists the fields named on the command line.
    """
    import penstock as ps

    try:
        yield
    except ps.PenstockError as error:
        is_typed = error.record is None and (error.field is None or error.field in named)
        if not (isinstance(error, ps.SchemaError) and is_typed and _OF_NAMES.search(error.message)):
            raise
        wrong = Misuse(_of_names(error), click.get_current_context(silent=True))
        wrong.field = error.field
        raise wrong from None
    except (ValueError, TypeError) as error:
        if isinstance(error, TypeError) and not (has_read or _OPTION_ERROR.search(str(error))):
            raise
        raise Misuse(str(error), click.get_current_context(silent=True)) from None


def _of_names(error: ps.SchemaError) -> str:
    """Return the message of an error about names, without the file, which is not the cause."""
    _, sign, known = error.message.partition("; there are: ")
    message = error.message if error.field is None else f"field {error.field!r}: {error.message}"
    message = f"there is no field {error.field!r}; there are: {known}" if sign else message
    return f"{message}\n  try: {error.hint}" if error.hint else message


def one_or_many(source: Sequence[str]) -> Any:
    """Return one path as a string, which may be a glob, a folder or name@N, and several paths as a list."""
    return source[0] if len(source) == 1 else list(source)


def opened(source: Sequence[str], **given: Any) -> ps.Dataset:
    """Open a dataset with the given reading options."""
    import penstock as ps

    given.pop("threads", None)
    if given.get("overlays") is None:
        given.pop("overlays", None)
    infer = given.pop("infer", None)
    if infer is not None:
        given["infer_records"] = infer
    read = of_format(given.pop("read", ()), "--read", ps.open)
    given |= read
    text = given.pop("text", None) or []
    computed = pairs_of(given.pop("computed", ()), "--with")
    columns = given.pop("columns", None)
    given["columns"] = None if computed else columns
    types = pairs_of(given.pop("types", None) or (), "--cast")
    with misuse(has_read=bool(read), named=(*(columns or ()), *types, *text)):
        if text == ["auto"]:
            text = _texts_of(ps.open(one_or_many(source), types=types or None, **given))
        cast = {**dict.fromkeys(text, "string"), **types} or None
        dataset = ps.open(one_or_many(source), types=cast, **given)
        if computed:
            dataset = _with_columns(dataset, computed)
            dataset = dataset if columns is None else dataset.select(columns)
        return dataset


def _with_columns(dataset: ps.Dataset, computed: dict[str, str]) -> ps.Dataset:
    try:
        return dataset.with_columns(computed)
    except ValueError as error:
        if type(error) is ValueError and any(map(_SECOND_NAME.search, computed.values())):
            message = f"{error}\n  try: --with for each field: --with a=json.a --with b=json.b"
            raise click.UsageError(message, click.get_current_context(silent=True)) from None
        raise


def _texts_of(dataset: ps.Dataset) -> list[str]:
    """The columns that are text in all records, except those of JSON, whose fields may be read."""
    import pyarrow as pa

    import penstock as ps

    found = [field for field in ps.stats(dataset).fields if field.is_text]
    return [field.name for field in found if not isinstance(field.type, pa.JsonType)]


def of_format(words: Sequence[str], option: str, verb: Callable[..., Any]) -> dict[str, Any]:
    """Return the format options given with an option such as --read. Refuse keywords of `verb` itself."""
    found = values_of(words, option)
    own = inspect.signature(verb).parameters if found else ()
    for name in found:
        if name in own:
            raise click.UsageError(f"{option}: {name!r} is not an option of a format")
    return found


def pairs_of(words: Sequence[str], option: str, *, empty: bool = False) -> dict[str, str]:
    """Return the NAME=VALUE words of an option as a dict. With `empty`, a value may be empty."""
    pairs: dict[str, str] = {}
    for word in words:
        name, sign, value = word.partition("=")
        if not (name and sign and (value or empty)):
            raise click.UsageError(f"{option}: {word!r} is not NAME=VALUE")
        pairs[name] = value
    return pairs


def values_of(words: Sequence[str], option: str, *, empty: bool = False) -> dict[str, Any]:
    """Return the words as a dict with values: numbers, true and false as in JSON, anything else as text. With `empty`, a
    value may be the empty text."""
    values: dict[str, Any] = {}
    for name, text in pairs_of(words, option, empty=empty).items():
        try:
            values[name] = json.loads(text)
        except ValueError:
            values[name] = text
    return values
