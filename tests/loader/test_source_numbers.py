"""`source_numbers=`: a column that says which dataset each record is from."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import penstock as ps


@pytest.fixture(scope="module")
def sets(tmp_path_factory: pytest.TempPathFactory) -> dict[str, ps.Dataset]:
    folder = tmp_path_factory.mktemp("sources")
    ps.write({"id": range(30)}, folder / "many.tfrecord")
    ps.write({"id": range(100, 110)}, folder / "few.parquet")
    return {"few": ps.open(folder / "few.parquet"), "many": ps.open(folder / "many.tfrecord")}


@pytest.mark.parametrize("threads", [0, 2])
def test_a_mixture_says_where_each_record_is_from(
    sets: dict[str, ps.Dataset], threads: int
) -> None:
    order = ps.Mixture({"many": 0.75, "few": 0.25}, seed=0)
    loader = ps.Loader(sets, 8, order=order, source_numbers="source", threads=threads)
    assert loader.class_names == {"source": ["many", "few"]}
    names = loader.class_names["source"]
    for batch in loader:
        assert batch["source"].dtype == np.int64
        expected = np.where(batch["id"] >= 100, "few", "many")
        assert [names[number] for number in batch["source"]] == expected.tolist()


def test_the_order_is_that_of_the_data_without_a_mixture(sets: dict[str, ps.Dataset]) -> None:
    loader = ps.Loader(sets, 40, source_numbers="source", record_numbers="number")
    (batch,) = loader
    assert batch["source"].tolist() == [0] * 10 + [1] * 30
    assert batch["number"].tolist() == list(range(40))
    assert loader.class_names == {"source": ["few", "many"]}
    listed = ps.Loader(list(sets.values()), 40, source_numbers="source")
    assert next(iter(listed))["source"].tolist() == batch["source"].tolist()
    assert listed.class_names == {}
    alone = ps.Loader(sets["few"], 10, source_numbers="source")
    assert next(iter(alone))["source"].tolist() == [0] * 10


def test_functions_get_the_column_and_a_state_does_not_depend_on_it(
    sets: dict[str, ps.Dataset],
) -> None:
    def weighted(batch: dict[str, Any]) -> dict[str, Any]:
        return {**batch, "weight": np.array([1.0, 0.2])[batch["source"]]}

    order = ps.Mixture({"many": 0.5, "few": 0.5}, seed=0)
    loader = ps.Loader(sets, 8, order=order, source_numbers="source", map=weighted)
    begun = iter(loader)
    batch = next(begun)
    assert batch["weight"].tolist() == [0.2 if n >= 100 else 1.0 for n in batch["id"]]
    plain = ps.Loader(sets, 8, order=order)
    plain.load_state_dict(loader.state_dict())
    assert next(iter(plain))["id"].tolist() == next(begun)["id"].tolist()


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"source_numbers": "id"}, ps.SchemaError),
        ({"source_numbers": 3}, TypeError),
        ({"source_numbers": "n", "record_numbers": "n"}, ps.SchemaError),
    ],
)
def test_other_names_are_refused(
    sets: dict[str, ps.Dataset], options: dict[str, Any], error: type[Exception]
) -> None:
    with pytest.raises(error, match="source_numbers"):
        ps.Loader(sets, 4, **options)
