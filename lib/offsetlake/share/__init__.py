"""Share groups (KIP-932): their members, start offsets and states, and a listener for share consumers of a cluster."""
