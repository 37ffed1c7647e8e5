"""The loader: batches of records in an exact order, from several threads."""
