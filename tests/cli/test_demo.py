"""The demo runs, does what it prints, and does not write into other people's folders."""

from __future__ import annotations

from pathlib import Path

from running import run, run_process


def test_the_demo_measures_and_all_its_comparisons_hold(tmp_path: Path) -> None:
    folder = tmp_path / "tour"
    done = run_process("demo", "--folder", folder, "--records", "5000", "--no-tensorflow", "--json")
    assert done.status == 0, done.err
    checks = done.document["checks"]
    assert len(checks) >= 7, checks
    assert all(checks.values()), checks
    assert all(figure["seconds"] > 0 for figure in done.document["figures"])
    assert (folder / "train-00000-of-00004.tfrecord").exists()


def test_the_demo_can_be_read_and_run_again(tmp_path: Path) -> None:
    arguments = ("demo", "--folder", "tour", "--records", "1000", "--no-tensorflow")
    for _ in range(2):
        done = run_process(*arguments, cwd=tmp_path, COLUMNS="80")
        assert done.status == 0
        assert done.err == ""
        assert "comparisons held" in done.out
        assert "\x1b" not in done.out
        assert max(len(line) for line in done.out.splitlines()) <= 80


def test_the_demo_does_not_write_into_a_folder_with_other_files(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    done = run("demo", "--folder", tmp_path)
    assert done.status == 2
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]
