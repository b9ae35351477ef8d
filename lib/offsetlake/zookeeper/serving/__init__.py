"""ZooKeeper beside the log, to which commits are also written, or as the store of offsets, which the log follows."""
