"""The offsets that are served: the mapped snapshot and the memtables over it."""
