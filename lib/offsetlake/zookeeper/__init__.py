"""Offsets that consumers of Kafka 0.8 to 2.x store in ZooKeeper, below `/consumers` (kafka.utils.ZkUtils).

The jobs read and write them; `serving` is the feature of the serving process that keeps them equal to its commits.
"""
