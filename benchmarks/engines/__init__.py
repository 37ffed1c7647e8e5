"""Who does the work: one file for penstock, for each rival, and for the machine's own limits.

A file defines its ROLE ("penstock", "rival" or "limit"), its VENV ("penstock", or an environment that
benchmarks/setup makes) and its JOBS: case name -> row name -> function that takes the data and returns a `Job`.
Libraries are imported inside those functions, so that the parent process can list the rows without them.
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
    "polars",
    "limit",
    "containers_rivals",
    "mxnet",
    "containers_limit",
    "arrays_rivals",
    "images_opencv",
    "images_torch",
    "images_limit",
)
