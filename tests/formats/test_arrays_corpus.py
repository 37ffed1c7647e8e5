"""Every published file of arrays is read within two seconds and 300 MB, in a separate process."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from reading import SHARED, run_python

READ = """
import json, resource, sys, time
import numpy, pyarrow, h5py
import penstock as ps
pyarrow.array([1]).to_pylist()
rss = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
out = {}
for line in sys.stdin:
    path = line.strip()
    before, start = rss(), time.process_time()
    try:
        dataset = ps.open(path, index="never", overlays=False)
        told = sum(batch.num_rows for batch in dataset.scan())
        assert told == len(dataset)
        if told:
            assert dataset.take([told - 1, 0]).num_rows == 2
        found = dataset.shards[0].format
    except ps.PenstockError as error:
        assert error.file == path, path
        found = type(error).__name__
    out[path] = [found, time.process_time() - start, rss() - before]
print(json.dumps(out))
"""


def files() -> list[Path]:
    suffixes = (".npy", ".npz", ".h5", ".hdf5")
    folders = (SHARED / "corpus" / "npy", SHARED / "corpus" / "hdf5")
    return sorted(p for folder in folders for p in folder.rglob("*") if p.suffix in suffixes)


@pytest.mark.parametrize("named", [True, False], ids=["by name", "by bytes"])
def test_the_corpus_is_read_within_its_bounds(named: bool, tmp_path: Path) -> None:
    paths = files()
    assert len(paths) >= 120, f"the corpus is not at {SHARED / 'corpus'}"
    wanted = {".npy": "npy", ".npz": "npz", ".h5": "hdf5", ".hdf5": "hdf5"}
    given: dict[str, str] = {}
    for number, path in enumerate(paths):
        place = path if named else tmp_path / f"file{number}"
        if not named:
            place.symlink_to(path)
        given[str(place)] = wanted[path.suffix]
    code = READ.replace("sys.stdin", "open(sys.argv[1])")
    names = tmp_path / "names"
    names.write_text("\n".join(given))
    found = json.loads(run_python(code, str(names), seconds=120))
    assert len(found) == len(paths)
    formats = 0
    for path, (told, seconds, megabytes) in found.items():
        assert seconds < 2, path
        assert megabytes < 300, path
        assert told == given[path] or told.endswith("Error"), path
        formats += told == given[path]
    assert formats > 80, formats
