"""Logs in a live Kafka cluster: reading them, and the admin requests of the jobs."""
