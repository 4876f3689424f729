"""Watching a run: what the ledger and the workers say, for the terminal and for Flower."""
