"""Logs in live Kafka clusters: reading them, and the admin requests of jobs."""
