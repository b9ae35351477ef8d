"""A rebalance: members join in the join phase, then wait for their assignments, which the leader sends."""
