"""The committed offsets: the mapped snapshot, the memtables above it, and the child process that builds a snapshot."""
