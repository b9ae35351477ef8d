"""The commands by which people change offsets: each shows its plan first."""
