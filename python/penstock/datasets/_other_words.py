"""Names that people know from other libraries, and what to write instead of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

SORT = (
    'ds.to_table().sort_by("label")',
    'penstock.sort(ds, "label", into="sorted.parquet")',
)
GROUP = ('ds.lazy().group_by("label").len().collect()',)
COLUMNS = ('ds.with_columns({"twice": "label * 2"})',)
INSTEAD: dict[str, tuple[str, ...]] = {
    "sort": SORT,
    "sort_by": SORT,
    "order_by": SORT,
    "sample": (
        'penstock.split(ds, {"some": 0.1, "rest": 0.9})["some"]',
        'penstock.convert(ds, "some.parquet", sample=0.1)',
    ),
    "shuffle": (
        "penstock.Loader(ds, 32, order=penstock.Shuffled(seed=0))",
        'penstock.convert(ds, "shuffled.parquet", shuffle=0)',
    ),
    "map": (*COLUMNS, "penstock.Loader(ds, 32, map=function)"),
    "assign": COLUMNS,
    "where": ('ds.filter("label == 3")',),
    "query": ('ds.filter("label == 3")',),
    "limit": ("ds.head(3)",),
    "group_by": GROUP,
    "groupby": GROUP,
    "to_pandas": ("ds.to_table().to_pandas()",),
    "to_polars": ("polars.DataFrame(ds)", "ds.lazy()"),
    "to_pydict": ("ds.to_table().to_pydict()",),
    "to_pylist": ("ds.to_table().to_pylist()",),
    "num_rows": ("len(ds)",),
    "split": ('penstock.split(ds, {"train": 0.9, "val": 0.1})',),
    "dedupe": ('penstock.dedupe(ds, "label", into="unique.parquet")',),
    "unique": ('penstock.dedupe(ds, "label", into="unique.parquet")',),
    "convert": ('penstock.convert(ds, "new.parquet")',),
    "write": ('penstock.write(ds, "new.parquet")',),
    "to_parquet": ('penstock.convert(ds, "new.parquet")',),
    "stats": ("penstock.stats(ds)",),
    "describe": ("penstock.stats(ds)",),
}
"""For each name, expressions of which each does what it means elsewhere."""


class OtherWords:
    """Raises errors for unknown attributes that name what does the same."""

    if not TYPE_CHECKING:  # for type checkers, there are only the attributes that exist

        def __getattr__(self, name: str) -> Any:
            message = f"{type(self).__name__!r} object has no attribute {name!r}"
            if name in INSTEAD:
                message += f"; use {', or '.join(INSTEAD[name])}"
            raise AttributeError(message, name=name, obj=self)
