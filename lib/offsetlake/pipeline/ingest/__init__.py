"""`ingest`: reads the new records of the log into the history tables."""
