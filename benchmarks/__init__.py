"""Compares penstock with its rivals and with the limits of the machine: ``python -m benchmarks``."""
