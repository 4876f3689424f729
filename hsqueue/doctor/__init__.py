"""Checks of everything that a run stands on, each with what to change."""
