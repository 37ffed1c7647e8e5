"""Writers of framed files."""
