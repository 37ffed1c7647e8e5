"""Threads, and results in order."""
