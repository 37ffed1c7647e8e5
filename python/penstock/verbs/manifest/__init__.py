"""`manifest` lists the shards of a dataset in one file."""
