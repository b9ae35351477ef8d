"""`compact` and `rebuild`: reduce history to the state tables; and the snapshots that consumers read."""
