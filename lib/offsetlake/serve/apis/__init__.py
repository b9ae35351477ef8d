"""The APIs of the Kafka protocol: the handlers of requests, and the dispatch to them."""
