"""Writing to logs in folders: ownership of the folder, appending, and the append protocol of the job socket."""
