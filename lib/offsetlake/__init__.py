"""Consumer offsets as a lakehouse: the offset commit log in Delta tables."""
