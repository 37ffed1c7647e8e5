"""Comparison of two datasets."""
