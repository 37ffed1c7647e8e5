"""What differs between two datasets."""
