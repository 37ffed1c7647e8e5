"""What `penstock.open` returns: files, scans, takes."""
