"""Assignors of partitions to members, with the results of Kafka's assignors for the same input."""
