"""The tables of history: their files and rows, what `maintain` has dropped, and the log partitions of groups."""
