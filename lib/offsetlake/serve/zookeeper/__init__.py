"""Committed offsets in ZooKeeper."""
