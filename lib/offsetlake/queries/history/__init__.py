"""Questions that history answers: offsets and groups at instants, their differences, and deleted offsets."""
