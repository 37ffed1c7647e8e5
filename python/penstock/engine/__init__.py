"""Runs tasks on threads, and returns their results in order."""
