"""The laws about damaged files."""

from __future__ import annotations

import warnings
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import penstock as ps
from penstock import formats
from penstock.contract.around import parts_around
from penstock.framing.format import FramedFormat
from penstock.testing._checks import FLIPS, check_same, damaged_copies, flipped
from penstock.testing._edges import EdgeLaws


class DamageLaws(EdgeLaws):
    """Tests with truncated files, and files with one wrong bit."""

    def test_damaged_files_raise_errors_of_penstock(self, tmp_path: Path) -> None:
        """Reading a file that is truncated or has a wrong bit returns records or raises an error of penstock."""
        path = self.write(tmp_path, self.table(20))
        if not self.at(path).is_file():
            return
        data = self.at(path).read_bytes()
        for number, damaged in enumerate(damaged_copies(data)):
            other = tmp_path / f"damaged{number}{self.at(path).suffix}"
            other.write_bytes(damaged)
            for damage in ("error", "skip"):
                with suppress(ps.PenstockError):
                    ps.open(other, format=self.format, index="never", damage=damage).to_table()
            other.unlink()

    def test_damage_is_found_at_known_positions(self, tmp_path: Path) -> None:
        """With loses_one and has_checksums: a wrong bit is an error about its record only, also in a file that was
        damaged after its positions were found, and `verify` reports the bytes of the record."""
        info, table = formats.by_name(self.format).info, self.table(20)
        if not (info.loses_one and info.has_checksums):
            return
        path = self.write(tmp_path, table)
        whole = self.at(path).read_bytes()
        with closing(self.reader(path)) as reader:
            positions: Any = reader.positions
            assert positions is not None, (
                "loses_one and has_checksums, but Reader.positions is None"
            )
            bits = range(8 * int(positions[0]), 8 * int(positions[-1]))
            for bit in np.random.default_rng(5).choice(bits, FLIPS).tolist():
                self.at(path).write_bytes(flipped(whole, bit))
                record = int(np.searchsorted(positions, bit // 8, "right")) - 1
                parts = [part for chunk in reader.chunks() for part in parts_around(reader, chunk)]
                errors = [part[2] for part in parts if isinstance(part[2], ps.PenstockError)]
                bad = [error.record for error in errors]
                place = f"bit {bit % 8} of byte {bit // 8} is wrong: "
                assert bad == [record], f"{place}errors about records {bad}, not {[record]}"
                for one in ps.verify(path, index="never").findings:
                    found = [one.start_byte, one.end_byte]
                    exact = found[0] == positions[record]  # a wrong length also moves the end
                    alone = (one.record, one.num_records) == (record, 1)
                    assert exact or not alone, f"{place}verify reports the bytes {found}"

    def test_skipped_damage_is_reported(self, tmp_path: Path) -> None:
        """A file with a wrong bit and damage="skip": a record is returned, or a region is reported. With checksums, the
        values are also right. An error about one record leaves the others."""
        table = self.table(20)
        path = self.write(tmp_path, table)
        if not self.at(path).is_file():
            return
        whole = self.at(path).read_bytes()
        with closing(self.reader(path)) as reader:
            ranges = [(chunk.start_byte, chunk.end_byte) for chunk in reader.chunks()]
        bits = np.concatenate([np.arange(8 * start, 8 * end) for start, end in ranges])
        for bit in np.random.default_rng(4).choice(bits, FLIPS).tolist():
            damaged = tmp_path / f"damaged{self.at(path).suffix}"
            damaged.write_bytes(flipped(whole, bit))
            self._check_damage(damaged, table, f"bit {bit % 8} of byte {bit // 8} is wrong: ")

    def _check_damage(self, path: Path, table: pa.Table, place: str) -> None:
        fault = self._check_reading(path, table, place)
        if fault is not None and fault.record is not None and fault.record > 0:
            self._check_neighbour(path, fault.record - 1, place)
        try:
            ds = ps.open(path, format=self.format, index="never", damage="skip")
        except ps.PenstockError:
            return
        error = None
        try:
            found = ds.to_table()
        except ps.PenstockError as raised:
            error, found = raised, table
        raises = error is not None and error.record is not None
        assert not raises, f'{place}damage="skip" raises about a record: {error}'
        lost = fault is not None and found.num_rows < table.num_rows
        assert ds.damage or not lost, f'{place}damage="skip" reports no region: {fault}'
        if formats.by_name(self.format).info.has_checksums:
            wanted = iter(table.to_pylist())
            good = all(row in wanted for row in found.to_pylist())
            assert good, f"{place}a wrong record is returned, although has_checksums=True"

    def _check_neighbour(self, path: Path, record: int, place: str) -> None:
        """Decode only the record before a bad one, which may be in the same chunk."""
        error = None
        try:
            with closing(self.reader(str(path))) as reader:
                chunk = next(c for c in reader.chunks() if c.first_record + c.num_records > record)
                reader.decode(chunk, np.array([record - chunk.first_record]), None)
        except ps.PenstockError as raised:
            error = raised
        about = None if error is None else error.record
        assert about in (None, record), f"{place}decode of record {record} raises about {about}"

    def _check_reading(self, path: Path, table: pa.Table, place: str) -> ps.PenstockError | None:
        """Read a damaged file without skipping, and return the error."""
        try:
            found = ps.open(path, format=self.format, index="never").to_table()
        except ps.PenstockError as error:
            return error
        if formats.by_name(self.format).info.has_checksums:
            good = found.to_pylist() == table.to_pylist()
            assert good, f"{place}this is not an error, although has_checksums=True"
        return None

    def test_a_truncated_file_is_found(self, tmp_path: Path) -> None:
        """Reading a truncated file is an error, and with damage="skip" the damage is reported, unless the file is what
        a writer makes of the records that are left."""
        path, table = self.several(tmp_path)
        if not self.at(path).is_file():
            return
        whole = self.at(path).read_bytes()
        with closing(self.reader(path)) as reader:
            chunks = list(reader.chunks())
        few = [*chunks[:3], *chunks[-3:]]
        edges = {at for chunk in few for at in (chunk.start_byte, chunk.end_byte)}
        near = {at + step for at in edges for step in (-1, 0, 1, 9)}
        random = np.random.default_rng(6).integers(1, len(whole), 16).tolist()
        for end in sorted(at for at in {*near, *random, len(whole) - 1} if 0 < at < len(whole)):
            other = tmp_path / f"cut{self.at(path).suffix}"
            other.write_bytes(whole[:end])
            for damage in ("error", "skip"):
                self._check_truncated(other, table, damage, f"the file ends at byte {end}: ")

    def _check_truncated(self, path: Path, table: pa.Table, damage: Any, place: str) -> None:
        try:
            ds = ps.open(path, format=self.format, index="never", damage=damage)
            num_records = ds.to_table().num_rows
        except ps.PenstockError:
            return
        if num_records == table.num_rows or ds.damage:
            return
        again = self.at(self.write(path.parent, table.slice(0, num_records), "again"))
        assert again.read_bytes() == path.read_bytes(), (
            f"{place}damage={damage!r} returns {num_records} of {table.num_rows} records, and reports nothing"
        )

    def test_a_file_cut_in_its_last_record_loses_only_that(self, tmp_path: Path) -> None:
        """With loses_one, or in a framed format: if a file ends inside its last record, `repair` and damage="skip" keep
        all other records."""
        fmt, table = formats.by_name(self.format), self.table(20)
        path = self.write(tmp_path, table)
        if not (self.at(path).is_file() and (fmt.info.loses_one or isinstance(fmt, FramedFormat))):
            return
        whole, wanted = self.at(path).read_bytes(), table.slice(0, table.num_rows - 1)
        with closing(self.reader(path)) as reader:
            edges, chunks = reader.positions, list(reader.chunks())
        end = chunks[-1].end_byte if edges is None else int(edges[-1])
        start = end - 2 if edges is None else int(edges[-2])
        for at in sorted({start + 1, (start + end) // 2, end - 1}):
            place = f"the file ends at byte {at}, in its last record: "
            cut, saved = (tmp_path / f"{name}{self.at(path).suffix}" for name in ("cut", "saved"))
            cut.write_bytes(whole[:at])
            try:
                self._check_saved(cut, saved, wanted, place)
            except ps.PenstockError as error:
                raise AssertionError(f"{place}{error}") from error

    def _check_saved(self, cut: Path, saved: Path, wanted: pa.Table, place: str) -> None:
        options: dict[str, Any] = {"format": self.format, "index": "never"}
        found = ps.open(cut, damage="skip", **options).to_table()
        check_same(found, wanted, f'{place}damage="skip": ')
        ps.repair(cut, into=saved, overwrite=True, format=self.format, index=False)
        check_same(ps.open(saved, **options).to_table(), wanted, f"{place}repair: ")

    def test_lost_records_are_counted(self, tmp_path: Path) -> None:
        """With has_checksums: the records that `verify` and damage="skip" find, and those that they report as lost, are
        all records, unless a number is unknown. An error of a whole chunk loses all its records."""
        path, table = self.several(tmp_path)
        if not (self.at(path).is_file() and formats.by_name(self.format).info.has_checksums):
            return  # without checksums, damaged bytes may look like more records
        whole = self.at(path).read_bytes()
        with closing(self.reader(path)) as reader:
            ranges = [(chunk.start_byte, chunk.end_byte) for chunk in reader.chunks()]
        rng = np.random.default_rng(7)
        for start, end in [*ranges[:2], *ranges[-2:]]:
            for bit in rng.integers(8 * start, 8 * end, 4).tolist() if end > start else ():
                damaged = tmp_path / f"damaged{self.at(path).suffix}"
                damaged.write_bytes(flipped(whole, bit))
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")  # a damaged name may look like another field
                    self._check_counts(
                        damaged, table, f"bit {bit % 8} of byte {bit // 8} is wrong: "
                    )

    def _check_counts(self, path: Path, table: pa.Table, place: str) -> None:
        report = ps.verify(path, format=self.format, index="never")
        self._check_sum(
            report.num_records,
            [one.num_records for one in report.findings],
            table,
            f"{place}verify",
        )
        with suppress(ps.PenstockError):
            ds = ps.open(path, format=self.format, index="never", damage="skip")
            found = ds.to_table().num_rows
            lost = [region.num_records for region in ds.damage]
            self._check_sum(found, lost, table, f'{place}damage="skip"')

    def _check_sum(self, found: int, lost: list[int | None], table: pa.Table, place: str) -> None:
        known = [number for number in lost if number is not None]
        total = found + sum(known)
        good = total == table.num_rows or (total < table.num_rows and len(known) < len(lost))
        assert good, (
            f"{place} finds {found} records and reports {lost} as lost, of {table.num_rows} records"
        )
