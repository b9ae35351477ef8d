"""The APIs of the Kafka protocol: which request is answered by what."""
