"""The classic group protocol: the leader of the members assigns the partitions (KIP-62, 134, 345, 394, 429)."""
