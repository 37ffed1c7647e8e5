"""The commands of `penstock fields` that change fields: add, drop, rename, replace, bake."""

from __future__ import annotations

import importlib
import json
import math
import os
import re
import shlex
import sys
from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import click

from penstock import errors
from penstock.cli import output
from penstock.cli.on import on_option
from penstock.cli.options import (
    NAMES,
    Misuse,
    json_option,
    misuse,
    names_in,
    one_or_many,
    pairs_of,
    reading,
    values_of,
)
from penstock.cli.stores import target_storage_option
from penstock.cli.words import PATH

if TYPE_CHECKING:
    import pyarrow as pa

    import penstock as ps

Function = TypeVar("Function", bound=Callable[..., Any])

_CALL = re.compile(
    r"(if|coalesce|len|startswith|endswith|contains|matches|lower|upper|trim|replace|abs|round|cast|try_cast|lookup)\("
)
"""The beginning of an expression in the language of conditions."""

_source = click.argument("source", type=PATH, metavar="SOURCE")
_sources = click.argument(
    "source", nargs=-1, required=True, type=PATH, metavar="SOURCE...",
    callback=lambda ctx, param, value: one_or_many(value),
)  # fmt: skip


def _refuse_damage(ctx: click.Context, _param: click.Parameter, value: str | None) -> None:
    if value in (None, "error"):
        return
    advice = (
        "penstock repair SOURCE --into repaired/ first, and change the fields of the repaired files"
    )
    if ctx.info_name == "bake":  # repaired files lack the fields that are stored next to them
        advice = f"penstock convert SOURCE TARGET --damage {value}, which writes these fields, too"
    raise click.UsageError(
        f"fields cannot be changed with --damage {value}: records would be lost\n  try: {advice}"
    )


overlay_option = click.option(
    "--overlays",
    type=PATH,
    metavar="FOLDER",
    help="The folder for the overlays, if nothing may be written next to the files.",
)
_WHERE = (
    click.option(
        "--into",
        type=PATH,
        help="A file, a folder or a pattern ({shard:05d}) for the new files.",
    ),
    click.option(
        "--in-place", is_flag=True, help="Replace each file when its new file is complete."
    ),
    overlay_option,
    click.option("--overwrite", is_flag=True, help="Replace files that exist."),
    click.option(
        "--verify",
        is_flag=True,
        help="Compare the old fields before a file gets its name.",
    ),
    click.option(
        "--damage",
        hidden=True,
        expose_value=False,
        callback=_refuse_damage,
        help="Only to say what to do instead.",
    ),
    *(reading("threads", "storage_options"), target_storage_option, on_option, json_option),
)
_VALUES = (
    click.option(
        "--from",
        "from_table",
        type=PATH,
        help="A table: CSV (.csv, .tsv), or any data that penstock can open.",
    ),
    click.option(
        "--columns",
        type=NAMES,
        metavar="NAME,…",
        help="The columns of the table to use, besides --by. [default: all]",
    ),
    click.option(
        "--set",
        "constants",
        multiple=True,
        metavar="NAME=VALUE",
        help="One value for all records: a number, true, false, null, or a text, which may be empty.",
    ),
    click.option(
        "--function",
        metavar="MODULE:NAME",
        help="A Python function that takes a record batch and returns the new fields.",
    ),
    click.option(
        "--reads", type=NAMES, metavar="NAME,NAME,…", help="The fields that the function takes."
    ),
    click.option(
        "--by",
        metavar="NAME",
        help="Join the table by this field; FIELD=COLUMN if the table has another name for it.",
    ),
)


def _missing(*choices: str) -> Callable[[Function], Function]:
    """The option `--missing`, for records whose key is not in the table. `choices` are its values besides "error"."""
    said = {"null": "no new fields", "keep": "their old values"}
    return click.option(
        "--missing",
        type=click.Choice(["error", *choices]),
        default="error",
        show_default=True,
        help="For records whose key is not in the table: an error, or "
        + ", or ".join(said[choice] for choice in choices)
        + ".",
    )


def _options(*options: Callable[[Any], Any]) -> Callable[[Function], Function]:
    def add(function: Function) -> Function:
        for option in reversed(options):
            function = option(function)
        return function

    return add


@click.command(
    "add",
    epilog="""\b
Examples:
  penstock fields add 'train-*.tfrecord' --from scores.parquet
  penstock fields add '/shared/train-*.tfrecord' --from scores.parquet --overlays my-overlays/
  penstock fields add train.tfrecord --from labels.csv --by id --in-place
  penstock fields add train-*.tfrecord --set split=train --into scored/
  penstock fields add train.tfrecord --function sizes:measure --reads image
""",
)
@_sources
@_options(*_VALUES, _missing("null"))
@click.option("--name", help="Name of the overlay. [default: the names of its fields]")
@click.option("--replace", is_flag=True, help="New fields may replace old fields.")
@_options(*_WHERE)
def add(source: Any, as_json: bool, **options: Any) -> None:
    """Add fields to the records of SOURCE.

    Without --into or --in-place they are stored next to the files, which do not change.
    """
    import penstock as ps

    fields, how, named = _values(options)
    _run("add", as_json, named, lambda **more: ps.add_fields(source, fields, **how, **more))


@click.command(
    "replace",
    epilog="""\b
Examples:
  penstock fields replace train.tfrecord --from labels.parquet --by id --in-place
  penstock fields replace 'train-*.tfrecord' --set split=test --into out/
  penstock fields replace train.tfrecord --set label=0 --where 'label >= 10'
  penstock fields replace train.tfrecord --from right.parquet --by id --missing keep
""",
)
@_sources
@_options(*_VALUES, _missing("null", "keep"))
@click.option(
    "--where",
    metavar="CONDITION",
    help="Replace values only in the records for which this is true; the others keep theirs.",
)
@_options(*_WHERE)
def replace(source: Any, as_json: bool, **options: Any) -> None:
    """Replace the values of fields in the records of SOURCE.

    Without --into or --in-place the change is stored next to the files, which do not change.
    """
    import penstock as ps

    words = options["constants"]
    fields, how, named = _values(options)
    if words:
        fields = _in_old_types(source, words, fields, options)
    named = {*named, *names_in(options["where"])}
    _run("replace", as_json, named, lambda **more: ps.replace_fields(source, fields, **how, **more))


@click.command(
    "drop",
    epilog="""\b
Examples:
  penstock fields drop train.tfrecord label
  penstock fields drop 'train-*.tfrecord' label debug --into smaller/
""",
)
@_source
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@_options(*_WHERE)
def drop(source: str, names: tuple[str, ...], as_json: bool, **options: Any) -> None:
    """Remove fields from the records of SOURCE.

    Without --into or --in-place the change is stored next to the files, which do not change.
    """
    import penstock as ps

    try:
        _run(
            "drop", as_json, names, lambda **more: ps.drop_fields(source, names, **options, **more)
        )
    except Misuse as error:
        _refuse_file(error.field, "drop", "NAME...")
        raise


@click.command(
    "rename",
    epilog="""\b
Examples:
  penstock fields rename train.tfrecord label=class
  penstock fields rename 'train-*.tfrecord' a=b b=a --into swapped/
""",
)
@_source
@click.argument("names", nargs=-1, required=True, metavar="OLD=NEW...")
@_options(*_WHERE)
def rename(source: str, names: tuple[str, ...], as_json: bool, **options: Any) -> None:
    """Rename fields of the records of SOURCE.

    Without --into or --in-place the change is stored next to the files, which do not change.
    """
    import penstock as ps

    for name in names:
        if "=" not in name:
            _refuse_file(name, "rename", "OLD=NEW...")
    pairs = pairs_of(names, "rename")
    named = {*pairs, *pairs.values()}
    _run(
        "rename", as_json, named, lambda **more: ps.rename_fields(source, pairs, **options, **more)
    )


@click.command(
    "bake",
    epilog="""\b
Examples:
  penstock fields bake train.tfrecord --in-place
  penstock fields bake 'train-*.tfrecord' --into baked/ --verify
""",
)
@_sources
@_options(*_WHERE)
def bake(source: Any, as_json: bool, **options: Any) -> None:
    """Write the fields and changes stored next to SOURCE into its records."""
    import penstock as ps

    _run("bake", as_json, (), lambda **more: ps.bake_fields(source, **options, **more))


def _refuse_file(name: str | None, *usage: str) -> None:
    """Advise to quote the pattern of SOURCE if a word for a field is a file, because the shell expanded the pattern."""
    if name is None or not os.path.exists(name):
        return
    folder, file = os.path.split(name)
    pattern = os.path.join(folder, f"*{os.path.splitext(file)[1]}")
    raise click.UsageError(
        f"{name!r} is a file, but the name of a field is expected here\n"
        f"  try: {errors.command('penstock', 'fields', usage[0], pattern, usage[1])}, with the pattern in quotes"
    )


def _values(options: dict[str, Any]) -> tuple[Any, dict[str, Any], Collection[str]]:
    table, function = options.pop("from_table"), options.pop("function")
    constants = _constants(options.pop("constants"))
    reads = options.pop("reads") or ()
    field, sign, column = (options["by"] or "").partition("=")
    if sign:
        options["by"] = {field: column}
    if sum(bool(given) for given in (table, function, constants)) != 1:
        raise click.UsageError("give exactly one of --from, --set and --function")
    if function is not None:
        return _function(function), {**options, "reads": reads}, reads
    return table or constants, {**options, "reads": reads}, {*reads, *constants, field}


def _constants(words: Sequence[str]) -> dict[str, Any]:
    for name, text in pairs_of(words, "--set", empty=True).items():
        if _CALL.match(text):
            computed, quoted = (shlex.quote(f"{name}={one}") for one in (text, json.dumps(text)))
            raise click.UsageError(
                f"--set: {text!r} is an expression, and --set does not compute\n"
                f"  try: penstock convert SOURCE TARGET --with {computed}, or --set {quoted} for the text itself"
            )
    return values_of(words, "--set", empty=True)


def _in_old_types(
    source: Any, words: Sequence[str], constants: dict[str, Any], options: dict[str, Any]
) -> dict[str, Any]:
    """Return the values of `--set` in the types of the fields that they replace."""
    import penstock as ps

    folder = options["overlays"] or ""
    is_there = "://" in folder or os.path.lexists(folder)
    with misuse():
        schema = ps.open(
            source,
            overlays=folder if is_there else True,
            storage_options=options["storage_options"],
        ).schema
    texts = pairs_of(words, "--set", empty=True)
    return {
        name: _in_old_type(schema, name, value, texts[name], options["where"])
        if isinstance(value, (bool, int, float, str)) and name in schema.names
        else value
        for name, value in constants.items()
    }


def _in_old_type(schema: pa.Schema, name: str, value: Any, text: str, where: str | None) -> Any:
    import pyarrow as pa

    wanted = schema.field(name).type
    is_extension = isinstance(wanted, pa.BaseExtensionType)
    try:
        made: Any = pa.array([value]).cast(wanted.storage_type if is_extension else wanted)[0]
        if _is_other(value, made.as_py()):
            raise pa.ArrowInvalid(f"{value} is not {made}")
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError, OverflowError):
        said = f"--set: the value {text!r} does not fit the field {name!r}, which is {wanted}"
        advice: list[str] = []
        if isinstance(value, str):
            said += ", and --set does not compute"
            computed = _expression(name, text, schema.names)
            advice.append(
                f"penstock convert SOURCE TARGET --with {computed}, or ps.replace_fields with a function in Python, "
                "to compute"
            )
        if where is None:
            given = shlex.quote(f"{name}={text}")
            advice.append(f"penstock fields add SOURCE --replace --set {given} to change the type")
        raise click.UsageError(said + "\n  try: " * bool(advice) + "; ".join(advice)) from None
    return value if is_extension else made


def _is_other(given: Any, made: Any) -> bool:
    """Whether a number became true, or a finite number infinity."""
    is_number = not isinstance(given, str)
    return is_number and given != made and (made is True or made in (math.inf, -math.inf))


def _expression(name: str, text: str, names: Sequence[str]) -> str:
    """Return the value of `--with` for a text that may be an expression."""
    from penstock import conditions

    try:
        conditions.expression_of(text, names)
    except ValueError:
        return f"{name}=EXPRESSION"
    return shlex.quote(f"{name}={text}")


def _function(named: str) -> Any:
    """Import a function given as MODULE:NAME. The current folder is searched first."""
    module, sign, name = named.partition(":")
    if not (module and sign and name):
        raise click.UsageError(f"--function: {named!r} is not MODULE:NAME")
    sys.path.insert(0, os.getcwd())
    try:
        return getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise click.UsageError(f"--function: {error}") from None


def _run(
    title: str, as_json: bool, named: Collection[str], work: Callable[..., ps.Summary]
) -> None:
    with output.progress(f"fields {title}") as progress, misuse(named=named):
        made = work(progress=progress)
    output.show_summary(made, as_json)


COMMANDS = (add, drop, rename, replace, bake)
