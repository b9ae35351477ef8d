"""Changes that users request: cleanup of groups, resets of offsets, and repair of incomplete commits."""
