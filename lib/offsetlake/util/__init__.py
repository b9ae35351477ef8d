"""What is not about offsets: times, atomic files, row codes, escaping, process exit."""
