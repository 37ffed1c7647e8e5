"""The stream of frames in a file, plain or compressed."""
