"""MXNet RecordIO."""
