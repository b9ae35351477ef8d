"""Commits of other engines to the tables of a lake: their detection, and the remedies."""
