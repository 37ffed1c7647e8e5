"""`repair` writes the verified records of damaged files to new files of the same format."""

from __future__ import annotations

import os
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from penstock import errors
from penstock.contract.format import Format, Options
from penstock.contract.report import Finding, Report
from penstock.engine.pipeline import checked_threads
from penstock.errors import ChangedError, LimitError, PenstockError, UnsupportedError, shown
from penstock.framing.format import FramedFormat
from penstock.framing.index import ahead, kept_schema, sidecar
from penstock.framing.index.sidecar import Index
from penstock.limits import Limits, limits_from
from penstock.manifests.names import expand, storage_of
from penstock.storage import journal
from penstock.storage.append_journal import resolved
from penstock.storage.base import Sink, State, Storage
from penstock.storage.hidden import TEMPORARY_SUFFIX
from penstock.storage.local import LocalStorage
from penstock.storage.local_sink import LocalSink, refuse_device
from penstock.storage.paths import index_option
from penstock.storage.urls import is_url
from penstock.verbs.check import textindex
from penstock.verbs.check._named import missing_shard
from penstock.verbs.check._overlays import refuse_overlays, remove_overlays
from penstock.verbs.check._repair_notes import Note, Repaired, note_of, own_name
from penstock.verbs.check._saving import How, Saving, saving_of
from penstock.verbs.check.findings import empty_file, first_error, found_in, is_empty_file
from penstock.verbs.check.verify import format_of
from penstock.verbs.convert.journal import refuse_existing
from penstock.verbs.machines import Counter, all_done, remove_all, remove_attempts, run_on
from penstock.verbs.own_names import refuse_name_of_another_format
from penstock.verbs.progress import Progress


def repair(
    source: Any,
    *,
    into: str | os.PathLike[str] | None = None,
    in_place: bool = False,
    overwrite: bool = False,
    salvage: bool = False,
    payloads: bool = True,
    decode: bool = False,
    format: str | None = None,
    index: bool | str = True,
    overlays: bool = True,
    limits: Limits | dict[str, int] | None = None,
    threads: int | None = None,
    progress: Progress | None = None,
    on: Any = None,
    storage: Any = None,
    storage_options: Mapping[str, Any] | None = None,
    target_storage: Storage | None = None,
    target_storage_options: Mapping[str, Any] | None = None,
    **format_options: Any,
) -> Report:
    """Write every verified record to new files, and report the lost records.

    Frames are copied unchanged, in order. A GZIP file is written as several GZIP members, which allow random access. A
    record is restored if only its header is damaged. A valid sidecar of the damaged file helps, because it has the
    positions and checksums of the records.

    Args:
        source: as for `open`.
        into: a file for one shard, or a folder for files of the same names, in the same folders below it.
        in_place: replace each damaged file when its new file is complete. A file without damage, or from which
            nothing can be saved, stays unchanged.
        overwrite: replace files that exist in `into`.
        salvage: also write frames that may be part of the payload of a larger, damaged record. Without it,
            only frames that were certainly records are written.
        payloads: leave out records that cannot be decoded, as `damage="skip"` does. False keeps every
            record with a valid frame, whatever its payload.
        decode: also decode every picture completely, as `verify(decode=True)` does, and leave out the records whose
            pictures cannot be decoded.
        format: the name of the format, instead of detecting it from the bytes.
        index: write an index with each file; a path is the folder for the indexes.
        overlays: refuse files next to which fields are stored, because the repaired files would lose them. False repairs
            without these fields; with `in_place`, the overlays of each replaced file are removed.
        limits: as for `open`.
        threads: the number of threads that read and compress; None for all cores.
        progress: called with the records done, the bytes done, and the total bytes.
        on: where the work is done: None for this process, "ray", "ray://host:port" or a `penstock.ray.Cluster` for the
            machines of a cluster. Each task repairs one file, with `threads` threads; None for the cores of the task. If
            the call is made again after it was killed, finished files are kept.
        storage_options: as for `open`.
        target_storage, target_storage_options: where repaired files are written. None for this machine, for `storage`,
            and for names such as s3://bucket/key, whose client takes its options from the environment.
        **format_options: options of the format, such as `compression="gzip"` for TFRecord.

    Returns:
        A Report of the damage. `paths` are the written files, which have `num_records` records. `unwritten` are the
        damaged files of which nothing could be saved.

    Raises:
        FileExistsError: a target exists and `overwrite` is False.
        BlockingIOError: another repair is writing a target.
        FileNotFoundError: there is no such file. A missing shard of a numbered set is a finding, and the others are
            repaired.
        UnsupportedError: the name of the new file belongs to another format, or a file has overlays. Overlays are found
            before anything is written.

    Example:
        >>> import penstock as ps
        >>> _ = ps.write({"id": [1, 2, 3]}, "numbers.tfrecord", overwrite=True)
        >>> ps.repair("numbers.tfrecord", into="whole.tfrecord", overwrite=True).num_records
        3
    """
    if (into is None) == (not in_place):
        raise ValueError("repair takes either into= or in_place=True")
    if decode and not payloads:
        raise ValueError("decode=True reads what payloads=False would not; leave one out")
    place, index = storage_of(source, storage, storage_options), index_option(index)
    at_once = checked_threads(threads)
    expanded = expand(source, place, missing_shards="ignore")
    paths = list(expanded.paths)
    if overlays:
        refuse_overlays(paths, place)
    targets = list(paths) if into is None else _targets(source, paths, os.fspath(into))
    options = Options(
        limits=limits_from(limits), stores_index=False, format_options=dict(format_options)
    )
    new_place = place
    if into is not None:
        new_place = storage_of(targets, target_storage or storage, target_storage_options)
    work = _Work(
        place,
        new_place,
        options,
        format,
        index,
        salvage,
        payloads,
        decode,
        overwrite,
        in_place,
        overlays,
        at_once,
        progress,
    )
    work.findings.extend(map(missing_shard, expanded.missing))
    work.total_bytes = sum(place.num_bytes(path) for path in paths) * (2 if in_place else 1)
    if on is None:
        for path, target in zip(paths, targets, strict=True):
            work.one(path, target)
    else:
        work.all_on(on, list(zip(paths, targets, strict=True)), threads)
    found, unwritten = tuple(work.findings), tuple(work.unwritten)
    return Report(work.num_records, found, work.num_bytes, tuple(work.paths), "repair", unwritten)


# Complexity: one branch for each kind of target.
def _targets(source: Any, paths: list[str], into: str) -> list[str]:
    is_folder = len(paths) > 1 or into.endswith(("/", os.sep)) or os.path.isdir(into)
    if is_folder and is_url(into):
        targets = [f"{into.rstrip('/')}/{name}" for name in _names(source, paths)]
    elif not is_folder:
        targets = [into]
    else:
        targets = [os.path.join(into, name) for name in _names(source, paths)]
        for folder in {into, *map(os.path.dirname, targets)}:
            os.makedirs(folder, exist_ok=True)
    if len(set(targets)) < len(targets):
        raise ValueError(
            f"two source files have the same name, so both would be one file in {into}"
        )
    for path, target in zip(paths, targets, strict=True):
        if target == path or (os.path.exists(target) and os.path.samefile(path, target)):
            raise ValueError(
                f"{shown(path)} would be written over itself; use in_place=True for that"
            )
    return targets


def _names(source: Any, paths: list[str]) -> list[str]:
    """The names of the new files: the paths below the folder that all files are in, or that the caller named."""
    if any(map(is_url, paths)):
        return _names_of_objects(source, paths)
    is_folder = isinstance(source, (str, os.PathLike)) and os.path.isdir(source)
    tops = [os.fspath(source)] if is_folder else [os.path.dirname(path) for path in paths]
    top = os.path.commonpath([os.path.abspath(folder) for folder in tops])
    names = [os.path.relpath(os.path.abspath(path), top) for path in paths]
    is_below = [name != os.curdir and name.split(os.sep)[0] != os.pardir for name in names]
    return names if all(is_below) else [os.path.basename(path) for path in paths]


def _names_of_objects(source: Any, paths: list[str]) -> list[str]:
    named = f"{source.rstrip('/')}/" if isinstance(source, str) else ""
    if not named or not all(path.startswith(named) for path in paths):
        common = os.path.commonprefix(paths)  # noqa: RUF071  cut at the end of a folder's name
        named = common[: common.rfind("/") + 1]
    names = [path.removeprefix(named) for path in paths]
    is_below = is_url(named) and named.count("/") > 2
    is_plain = all({"", ".", ".."}.isdisjoint(name.split("/")) for name in names)
    return names if is_below and is_plain else [os.path.basename(path) for path in paths]


@dataclass
class _Work:
    storage: Storage
    """Where the files are."""
    new_storage: Storage
    """Where the repaired files go."""
    options: Options
    format: str | None
    index: bool | str
    salvage: bool
    payloads: bool
    decode: bool
    overwrite: bool
    in_place: bool
    overlays: bool
    threads: int
    progress: Progress | None
    total_bytes: int = 0
    done_bytes: int = 0
    num_bytes: int = 0
    num_records: int = 0
    findings: list[Finding] = field(default_factory=list[Finding])
    paths: list[str] = field(default_factory=list[str])
    unwritten: list[str] = field(default_factory=list[str])

    def all_on(self, on: Any, files: Sequence[tuple[str, str]], threads: int | None) -> None:
        """Repair all files on a cluster."""
        paths, targets = [path for path, _ in files], [target for _, target in files]
        folder = [] if self._index_folder is None else [self._index_folder]
        task = partial(_repaired, replace(self, progress=None), threads)
        places = (self.storage, paths), (self.new_storage, [*targets, *folder])
        counter = Counter(self.progress, self.total_bytes)
        share = 2 if self.in_place else 1
        first = self._note(*files[0])
        if (made := first.all_made(targets)) is None:
            try:
                made = all_done(
                    run_on(on, task, files, *places),
                    paths,
                    lambda _, made: counter.add(made.num_records, share * made.num_bytes),
                )
            finally:
                remove_attempts(self.new_storage, self._hidden(targets))
            first.keep_all(targets, made)
        for path, one in zip(paths, made, strict=True):
            self._add(path, one)
        remove_all(self.new_storage, map(note_of, targets[1:]))
        remove_all(self.new_storage, [note_of(targets[0])])

    def _add(self, path: str, made: Repaired) -> None:
        self.num_records += made.num_records
        self.num_bytes += made.num_bytes
        self.findings.extend(made.findings)
        self.paths += [] if made.path is None else [made.path]
        self._note_if_lost(path, made.path is not None, made.findings)

    def _note_if_lost(self, path: str, is_written: bool, findings: Sequence[Finding]) -> None:
        if not is_written and first_error(findings) is not None:
            self.unwritten.append(path)

    def _hidden(self, targets: Sequence[str]) -> Iterator[str]:
        """The files of which killed workers may leave temporary ones."""
        for target in targets:
            folder = os.path.dirname(target)
            kept = sidecar.path_for(target, self._index_folder)
            place, name = os.path.split(kept)
            yield from (target, note_of(target), os.path.join(folder, own_name(target)))
            yield from (kept, os.path.join(place, name.removeprefix(".")))

    def once(self, path: str, target: str) -> Repaired:
        """Repair one file, unless an earlier task of the same job has done so."""

        def repair(may_be_there: bool) -> Repaired:
            own = replace(
                self, overwrite=self.overwrite or may_be_there, findings=[], paths=[], unwritten=[]
            )
            own.one(path, target)
            made = own.paths[0] if own.paths else None
            return Repaired(own.num_records, own.num_bytes, tuple(own.findings), made)

        return self._note(path, target).once(repair)

    def _note(self, path: str, target: str) -> Note:
        options = self.options.limits, self.options.format_options
        how = self.format, self.index, self.salvage, self.payloads, self.decode, self.in_place
        # A file that is repaired in place has another state afterwards.
        before = None if self.in_place else self.storage.state(path)
        return Note(self.new_storage, target, [path, before, options, how])

    def one(self, path: str, target: str) -> None:
        num_written, num_found = len(self.paths), len(self.findings)
        self._one(path, target)
        self._note_if_lost(path, len(self.paths) > num_written, self.findings[num_found:])

    def _one(self, path: str, target: str) -> None:
        source = self.storage.source(path)
        self.num_bytes += source.size
        try:
            try:
                kind = format_of(source, self.format)
                if is_empty_file(source, kind):
                    self.findings.append(empty_file(kind, path))
                    if not (isinstance(kind, FramedFormat) and kind.finds_next):
                        return  # other formats get an archive without records
                saving = saving_of(source, kind, self.how)
            except PenstockError as error:
                self.findings.append(found_in(error, path, 0, source.size))
                return
            refuse_name_of_another_format(kind, path, target)
            if self.in_place:
                num_records, findings = saving.look()
                lost_all = not num_records
                _refuse_limited(path, findings)
                if first_error(findings) is None or lost_all:
                    self.findings.extend(findings)
                    self.num_records += num_records
                    self.tell(0, source.size)
                    return
            if self.in_place and kind.info.is_folder:
                message = "a folder cannot be repaired in place, since it may hold other files, too"
                raise UnsupportedError(message, file=path, hint="repair(..., into=...)")
            self._write(saving, kind, path, target)
        finally:
            source.close()

    def _types_of(self, path: str, kind: Format) -> bytes:
        """Return the types stored in the sidecar, if the sidecar matches this file except for the damage."""
        places = ("auto", self._index_folder or "auto") if self.index is not False else ()
        given = (Options(index=kept, limits=self.options.limits) for kept in dict.fromkeys(places))
        found = (kept_schema.of_file(path, self.storage, o, lambda source: kind) for o in given)
        return next(filter(None, found), b"")

    def _write(self, saving: Saving, kind: Format, path: str, target: str) -> None:
        types = self._types_of(path, kind)
        replaces = self.overwrite or self.in_place
        if not isinstance(self.new_storage, LocalStorage):
            before = self.storage.opened_state(path) if self.in_place else None
            sink = self.new_storage.sink(target, overwrite=replaces)
            self._save(saving, kind, target, sink, types, before)
            return
        with _alone_at(target) as hidden:
            if not replaces:
                refuse_existing([target])
            here = [path] if isinstance(self.storage, LocalStorage) else []
            storage = self.new_storage.no_more_open_than(here)
            if kind.info.is_folder:
                sink = storage.folder_sink(target, overwrite=replaces)
            else:
                refuse_device(target)
                sink = storage.sink(hidden, overwrite=replaces, like=target)
            self._save(saving, kind, target, sink, types)

    def _save(
        self,
        saving: Saving,
        kind: Format,
        target: str,
        sink: Sink,
        types: bytes,
        before: State | None = None,
    ) -> None:
        """Write a repaired file. `before` is the state of an object that it replaces."""
        begun = sink.path
        try:
            num_records, findings = saving.save(sink)
            made = self._index_of(saving, sink, types)
            if before is not None and self.storage.state(target) != before:
                message = "the object was changed or replaced while it was repaired"
                raise ChangedError(message, file=shown(target))
            with self._index_ahead(made, sink, target):
                sink.commit(target if target != begun else None)
        except BaseException as error:
            saving.abort()
            sink.abort()
            errors.known_as(error, begun.__eq__, target)
            raise
        self.num_records += num_records
        self.findings.extend(findings)
        self.paths.append(target)
        if self.in_place and not self.overlays:
            remove_overlays(target, self.new_storage)
        self._keep_indexes(made, kind, target, sink)

    def _keep_indexes(self, made: Index | None, kind: Format, target: str, sink: Sink) -> None:
        if made is not None and self.index is not False and not isinstance(sink, LocalSink):
            sidecar.save(made, target, self.new_storage, self._index_folder)
        elif self.in_place and (made is None or self.index is False):
            sidecar.discard(target)
        if made is not None and made.layout != "none" and (self.in_place or self.overwrite):
            textindex.follow(kind, made, target, self.new_storage)

    @property
    def _index_folder(self) -> str | None:
        return None if isinstance(self.index, bool) else self.index

    def _index_of(self, saving: Saving, sink: Sink, types: bytes) -> Index | None:
        made = saving.index()
        if made is not None:
            return replace(made, schema=types)
        if not (types and isinstance(sink, LocalSink)):
            return None
        sink.finish()
        return kept_schema.index_of_others(sink.temporary, self.new_storage, types)

    def _index_ahead(
        self, made: Index | None, sink: Sink, target: str
    ) -> AbstractContextManager[Any]:
        """Write the index of a new local file to disk before the file gets its name."""
        if made is None or self.index is False or not isinstance(sink, LocalSink):
            return nullcontext()
        assert isinstance(self.new_storage, LocalStorage), "its files have such sinks"
        sink.finish()
        return ahead.save(made, sink.temporary, target, self.new_storage, self._index_folder)

    @property
    def how(self) -> How:
        return How(self.options, self.salvage, self.payloads, self.decode, self.threads, self.tell)

    def tell(self, num_records: int, num_bytes: int = 0) -> None:
        """Report progress: the records done in the current file, and the bytes done since the last call."""
        self.done_bytes += num_bytes
        if self.progress is not None:
            done = min(self.done_bytes, self.total_bytes)
            self.progress(self.num_records + num_records, done, self.total_bytes)


def _repaired(work: _Work, threads: int | None, file: tuple[str, str]) -> Repaired:
    """The task of one file."""
    return replace(work, threads=checked_threads(threads)).once(*file)


@contextmanager
def _alone_at(target: str) -> Generator[str]:
    """Lock a local file against other repairs, or raise BlockingIOError. Remove the leftovers of a killed repair, and
    yield the temporary name of the new file, which no other verb uses."""
    folder, name = os.path.split(resolved(target))
    hidden = os.path.join(folder, own_name(name))
    message = "another repair is writing it; wait until that ends"
    with journal.alone_with(f"{hidden}.lock{TEMPORARY_SUFFIX}", message, target):
        journal.clear(folder or ".", journal.temporaries_of([os.path.basename(hidden)]))
        yield hidden


def _refuse_limited(path: str, findings: list[Finding]) -> None:
    """Raise LimitError if a limit left a part of a file unread, because that part may be undamaged."""
    for finding in findings:
        if finding.kind == "limit":
            raise LimitError(
                finding.message, file=path, record=finding.record, byte=finding.start_byte
            )
