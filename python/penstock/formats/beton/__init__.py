"""FFCV .beton."""
