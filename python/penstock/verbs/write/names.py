"""The names of the shards that a verb writes."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import replace

from penstock.contract.summary import Summary
from penstock.storage.base import Storage
from penstock.storage.set_names import sets_of_same_name
from penstock.storage.urls import is_url

SHARD_PATTERN = re.compile(r"\{shard(:[^{}]*)?\}")
# A word that a format string would replace, such as {split} or {user-id}; {1,2} is none.
_BRACES = re.compile(r"\{(\w+([.-]\w+)*)?(:[^{}]*)?\}")


class Names:
    """The names of the shards. If names contain the number of shards, final names are known only at the end."""

    def __init__(
        self, target: str, extensions: tuple[str, ...], is_sharded: bool, total: int | None
    ) -> None:
        refuse_unknown(target)
        self._target = target
        self._is_pattern = SHARD_PATTERN.search(os.path.basename(target)) is not None
        self._is_sharded = is_sharded
        self._total = total
        known = [end for e in extensions for end in (e, e + ".gz") if target.endswith(end)]
        suffix = max(known, key=len, default=os.path.splitext(target)[1])
        self._stem, self._suffix = target[: len(target) - len(suffix)], suffix

    def final(self, number: int, total: int) -> str:
        if self._is_pattern:
            folder, name = os.path.split(self._target)
            name = SHARD_PATTERN.sub(lambda found: _number(number, found[1]), name)
            return os.path.join(folder, name)
        if not self._is_sharded:
            return self._target
        width = max(5, len(str(total)))
        return f"{self._stem}-{number:0{width}d}-of-{total:0{width}d}{self._suffix}"

    def noted(self, made: Summary) -> Summary:
        """Add what the names say about the written files to their summary."""
        return with_notes_of_names(made, self._target)

    @property
    def are_final(self) -> bool:
        """Whether the final names are known before the last shard."""
        return self._total is not None or self._is_pattern or not self._is_sharded

    def provisional(self, number: int) -> str:
        """Return the final name if it is known, else a temporary name in the same folder."""
        if self.are_final:
            return self.final(number, self._total or 1)
        return f"{self._stem}-{number:05d}-of-unknown{self._suffix}"

    def of_task(self, token: str, task: int, *, is_cut: bool) -> str:
        """Return the pattern of the names of what one task of many writes, when no task knows how many shards the others
        write. With `is_cut`, a task may write several shards."""
        shard = "-{shard:05d}" if is_cut else ""
        return f"{self._stem}-{token}-{task:06d}{shard}{self._suffix}"

    def is_shard(self, name: str) -> bool:
        """Whether a file of this name in the folder is a shard of such a set, however many shards it has and whoever wrote
        it."""
        if self._is_pattern:
            fixed = SHARD_PATTERN.split(os.path.basename(self._target))[::2]
            return re.fullmatch(r"\d+".join(map(re.escape, fixed)), name) is not None
        begin, end = re.escape(os.path.basename(self._stem)), re.escape(self._suffix)
        number = r"\d{5,}-of-\d{5,}|[0-9a-f]{8}-\d{6}(-\d{5})?"
        return re.fullmatch(f"{begin}-({number}){end}", name) is not None

    def taken(self) -> list[str]:
        """Return the local files or folders that shards may replace, if final names are known only at the end."""
        if self.are_final:
            return []
        folder = os.path.dirname(self._stem)
        if not os.path.isdir(folder or "."):
            return []
        name = re.escape(os.path.basename(self._stem)), re.escape(self._suffix)
        shard = re.compile(rf"{name[0]}-\d+-of-\d+{name[1]}")
        names = os.listdir(folder or ".")
        return [os.path.join(folder, name) for name in names if shard.fullmatch(name)]

    def refuse_existing(self, storage: Storage, total: int | None, *, overwrite: bool) -> None:
        """Raise FileExistsError if a target exists, before any work is done."""
        if overwrite or (self._is_sharded and total is None):
            return
        for number in range(total or 1):
            name = self.final(number, total or 1)
            if storage.exists(name):
                raise FileExistsError(f"{name} exists; pass overwrite=True to replace it")


def words_in(target: str) -> list[str]:
    """The words in braces, besides the `{shard}` of the file's name."""
    folder, name = os.path.split(_open_part(target))
    found = _BRACES.finditer(f"{folder}/{SHARD_PATTERN.sub('', name)}")
    return [one[0][1:-1] for one in found]


def filled(target: str, values: Mapping[str, str]) -> str:
    """Put values in the place of their words in braces."""
    part = _open_part(target)
    fixed = target[: len(target) - len(part)]
    return fixed + _BRACES.sub(lambda found: values.get(found[0][1:-1], found[0]), part)


def _open_part(target: str) -> str:
    """The part of a target whose braces are replaced. A folder that exists may have some in its name."""
    return os.path.basename(target) if os.path.isdir(os.path.dirname(target)) else target


def refuse_unknown(target: str) -> None:
    """Refuse words in braces that nothing replaces."""
    for word in words_in(target):
        raise ValueError(
            f"{target}: nothing replaces {{{word}}} there; only {{shard}}, in the name of the file, is replaced, by the"
            " number of the file. To write files for each value of a column, use convert, where the name of a column"
            " in braces is replaced by its values"
        )


def _number(number: int, spec: str | None) -> str:
    """Format a shard's number as the pattern requires, such as `{shard:05d}`."""
    try:
        return f"{number:{(spec or ':')[1:]}}"
    except ValueError as error:
        raise ValueError(
            f"{{shard{spec}}} in the pattern is not a number format: {error}"
        ) from None


def with_notes_of_names(made: Summary, target: str) -> Summary:
    """Add a note if the shards of a pattern such as `x-{shard}` are opened in another order than they were written
    (opening a pattern sorts the names), or if an older set of shards has the same name."""
    others = sets_of_same_name(made.paths[0]) if made.paths and not is_url(made.paths[0]) else []
    if others:
        note = (
            f"{' and '.join(others)} has the same name, perhaps from an earlier write; remove its files: a folder or "
            "pattern with both is refused"
        )
        made = replace(made, notes=(*made.notes, note))
    if SHARD_PATTERN.search(os.path.basename(target)) is None or list(made.paths) == sorted(
        made.paths
    ):
        return made
    note = "these names do not sort in the order of the records; {shard:05d} does"
    return replace(made, notes=(*made.notes, note))
