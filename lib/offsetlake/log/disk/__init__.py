"""Logs in folders: segments, their indexes, reading and cutting partitions, and what a folder lacks of its log."""
