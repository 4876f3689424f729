"""Celery: its configuration, the producer that sends shards, and the reaper that sends lost ones again."""
