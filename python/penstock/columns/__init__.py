"""Arrow columns: logical types, casts, selections, numbers."""
