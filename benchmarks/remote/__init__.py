"""`python -m benchmarks.remote`: penstock and its rivals on objects in a store, over a link and on bare loopback."""
