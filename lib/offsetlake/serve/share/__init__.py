"""Share consumers of a cluster (KIP-932): a listener that names this process as the leader of all partitions."""
