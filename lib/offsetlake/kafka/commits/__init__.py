"""Offset commits: their keys and values, decoded into Arrow columns and encoded for a log."""
