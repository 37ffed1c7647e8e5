"""Manifests: Parquet files that list the shards of a dataset, with their sizes, states and record counts."""
