"""Verbs that add, drop, rename and replace fields."""
