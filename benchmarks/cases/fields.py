"""Fields of existing records: added, dropped, replaced, and stored next to the shard."""

from __future__ import annotations

from benchmarks.cases.case import Case, Goal

CAT = "limit: cat in > out"

CASES = (
    Case(
        name="fields-add-small",
        says="one int64 more in 1,000,000 records of 150 bytes, from tmpfs to tmpfs",
        size="small",
        limits={"": CAT},
        goals=(Goal("penstock: 2 threads", at_least=20),),
    ),
    Case(
        name="fields-add-large",
        says="the same in 20,000 records of 100 KB; penstock verifies the old checksums on the way",
        size="large",
        limits={"": CAT},
        goals=(Goal("penstock: 2 threads", at_least=0.8, of=CAT),),
    ),
    Case(
        name="fields-drop",
        says="one field of four less in 1,000,000 records of 150 bytes",
        size="small",
        limits={"": CAT},
        goals=(Goal("penstock: 2 threads", at_least=10),),
    ),
    Case(
        name="fields-replace",
        says="one field of four replaced in 1,000,000 records of 150 bytes",
        size="small",
        limits={"": CAT},
        goals=(Goal("penstock: 2 threads", at_least=10),),
    ),
    Case(
        name="fields-overlay",
        says="one int64 for 20,000 records of 100 KB, kept beside the shard, its index present",
        size="large",
        measure="seconds",
        goals=(Goal("penstock: overlay", at_least=100, of="penstock: rewrite, 2 threads"),),
    ),
    Case(
        name="fields-scan",
        says="1,000,000 Examples to columns, one of which was added",
        size="small",
        goals=(Goal("penstock: overlay", at_least=0.9, of="penstock: spliced"),),
    ),
)
