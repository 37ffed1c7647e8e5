"""Fields added, dropped, renamed and replaced."""
