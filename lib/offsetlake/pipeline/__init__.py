"""The jobs: what is read, by which rules it changes, where it is written, and in which order."""
