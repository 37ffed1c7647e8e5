"""Shared code of all framed formats: streams, the walk over frames, the index, and damage scans."""
