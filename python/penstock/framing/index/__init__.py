"""The index of a file: build, store and validate it."""
