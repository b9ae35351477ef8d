"""The commit log: segments on disk, a live Kafka topic, and the Spark source over both."""
