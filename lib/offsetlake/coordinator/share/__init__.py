"""Share groups (KIP-932): members, the assignor, and which share partitions are initialized."""
