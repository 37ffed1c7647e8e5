"""The index of a file: how it is made, kept, and found valid."""
