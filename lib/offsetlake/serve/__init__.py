"""The serving process: a coordinator for offsets that consumers and tools talk to; a snapshot, and what came since.

It imports neither Arrow nor Delta nor Spark: what needs them runs in a process of its own
(`offsetlake.serve.storage.snapshot_build`).
"""
