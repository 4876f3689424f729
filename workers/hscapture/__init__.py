"""Capture of hidden states inside a serving process, and the writer of the dumps."""
