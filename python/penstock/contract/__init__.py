"""What a format is to everything above it, and what the caller asks of one."""
