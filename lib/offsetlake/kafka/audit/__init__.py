"""Audit events: who changed offsets, in the headers of record batches."""
