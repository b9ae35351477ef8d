"""The wire format of the Kafka protocol: reading requests and encoding responses."""
