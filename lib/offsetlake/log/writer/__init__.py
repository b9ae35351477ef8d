"""Writing to logs in folders: ownership, appending, the journal, repair after a crash, and the append protocol."""
