"""Moves partitions between this process and other brokers: adoption, return, and replicas of other topics."""
