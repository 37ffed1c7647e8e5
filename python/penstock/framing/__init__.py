"""What all framed formats share: streams, the walk over frames, the index, damage scans."""
