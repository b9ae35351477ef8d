"""The groups of a log: their state, replayed from the group records, and their rows of the tables."""
