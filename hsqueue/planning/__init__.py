"""Prompts in, a run's plan out: sources, records, tokens and loss masks, Parquet shards, one atomic publication."""
