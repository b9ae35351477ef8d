"""The byte formats of Kafka's coordinator topics, and Arrow columns of them; no Spark, no Delta, no sockets."""
