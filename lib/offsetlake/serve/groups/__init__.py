"""Group membership in the serving process: the requests, timers and records of the coordinator's core."""
