"""Offsets that consumers of Kafka 0.8 to 2.x store in ZooKeeper, below `/consumers` (kafka.utils.ZkUtils)."""
