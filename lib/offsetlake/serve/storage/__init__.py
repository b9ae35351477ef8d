"""The committed offsets in memory: the mapped snapshot and the memtables above it."""
