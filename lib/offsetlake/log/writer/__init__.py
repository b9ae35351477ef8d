"""Writing to a log in a folder: its lock, the appender, and the protocol of the job socket."""
