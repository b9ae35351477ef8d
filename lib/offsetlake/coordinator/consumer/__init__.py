"""The consumer group protocol: the coordinator assigns the partitions (KIP-848)."""
