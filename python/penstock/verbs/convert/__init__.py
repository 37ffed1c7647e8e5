"""Conversion of datasets to other formats."""
