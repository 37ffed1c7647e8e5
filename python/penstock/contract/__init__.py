"""The interface between formats and everything above them."""
