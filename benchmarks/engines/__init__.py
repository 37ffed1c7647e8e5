"""How the work is done: one file for penstock, for each rival, and for the machine's own limits.

A file states its ROLE ("penstock", "rival" or "limit"), its VENV ("penstock", or one that
benchmarks/setup makes) and its JOBS: case name -> row name -> function of the data that gives a `Job`. Libraries
are imported inside those functions, so that the parent can list the rows without them.
"""

ENGINES = (
    "penstock",
    "tensorflow",
    "tfx_bsl",
    "google_crc32c",
    "array_record",
    "grain",
    "h5py",
    "datasets",
    "lance",
    "parquet",
    "limit",
    "containers_rivals",
    "mxnet",
    "containers_limit",
    "arrays_rivals",
    "images_opencv",
    "images_torch",
    "images_limit",
)
