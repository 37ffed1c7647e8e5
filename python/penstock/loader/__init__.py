"""The loader, which several threads use to make batches of records in an exact order."""
