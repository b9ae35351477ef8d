"""Helpers that are not specific to offsets: times, atomic files, row codes, escaping, process exit."""
