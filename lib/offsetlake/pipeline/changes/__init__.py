"""Changes that people order: clean-up of groups, resets of offsets, and repair of incomplete commits."""
