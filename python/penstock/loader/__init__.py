"""The loader, which makes batches of records in an exact order on several threads."""
