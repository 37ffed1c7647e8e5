"""The dataset that `penstock.open` returns: its files, scans, and reads by record number."""
