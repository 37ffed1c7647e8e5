"""`ps.plan` and `ps.audit` of a loader's `torch()`, `jax()` and `keras()`, and of a DataLoader."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from torch.utils.data import DataLoader

import penstock as ps


def wrapped(loader: ps.Loader, how: str) -> Any:
    if how == "keras":
        return loader.keras("id", None)
    view = loader.jax() if how == "jax" else loader.torch()
    if how == "torch on a device":
        return loader.torch(device="cpu")
    return DataLoader(view, batch_size=None) if how == "DataLoader" else view


@pytest.mark.parametrize("how", ["torch", "torch on a device", "DataLoader", "jax", "keras"])
def test_the_loader_beneath_is_audited(tmp_path: Path, how: str) -> None:
    ps.write({"id": range(20)}, tmp_path / "n.tfrecord")

    def loader() -> ps.Loader:
        return ps.Loader(ps.open(tmp_path / "n.tfrecord"), 4, order=ps.Shuffled(0))

    plain, own = loader(), loader()
    given = wrapped(own, how)
    assert ps.plan(given, audit=True) == ps.plan(plain, audit=True)
    assert ps.audit(given).coverage == ps.audit(plain).coverage
    expected = [batch["id"].tolist() for batch in plain]
    batches = [given[n][0] for n in range(5)] if how == "keras" else [one["id"] for one in given]
    assert [batch.tolist() for batch in batches] == expected


def test_a_state_after_an_audit_is_that_of_the_next_epoch(tmp_path: Path) -> None:
    ps.write({"id": range(20)}, tmp_path / "n.tfrecord")
    view = ps.Loader(ps.open(tmp_path / "n.tfrecord"), 4, order=ps.Shuffled(0)).torch(device="cpu")
    batches = iter(view)
    next(batches)
    assert view.state_dict()["position"] == 4
    batches.close()
    ps.audit(view)
    assert (view.state_dict()["epoch"], view.state_dict()["position"]) == (2, 0)


def test_other_objects_are_refused(tmp_path: Path) -> None:
    ps.write({"id": range(20)}, tmp_path / "n.tfrecord")
    ds = ps.open(tmp_path / "n.tfrecord")
    for other in (ds, 3, DataLoader(ds), [1]):
        with pytest.raises(TypeError, match=r"take a penstock\.Loader, its torch\(\)"):
            ps.audit(other)
        with pytest.raises(TypeError, match=type(other).__name__):
            ps.plan(other)
