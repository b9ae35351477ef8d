"""Counters and histograms of requests."""
