"""Counters and durations of requests."""
