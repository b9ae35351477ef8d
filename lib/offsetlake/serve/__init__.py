"""The serving process: an offset coordinator for consumers and tools that speak the Kafka protocol.

It serves a mapped snapshot of the tables and the commits that were written since. It imports neither Arrow nor Delta
nor Spark: work that needs them runs in a child process (`offsetlake.serve.storage.snapshot_build`).
"""
