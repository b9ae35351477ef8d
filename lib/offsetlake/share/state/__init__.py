"""Serves the share coordinator: keeps the state of share partitions, and writes it to `__share_group_state`."""
