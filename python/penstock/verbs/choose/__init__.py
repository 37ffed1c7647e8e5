"""Verbs that choose records, or order them: split, dedupe, sort."""
