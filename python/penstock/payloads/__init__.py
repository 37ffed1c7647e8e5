"""What the records of framed formats hold."""
