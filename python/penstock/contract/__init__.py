"""The interface between formats and everything above them, and the options of a reader."""
