"""Requests and responses as bytes, by the schemas of the Kafka protocol."""
