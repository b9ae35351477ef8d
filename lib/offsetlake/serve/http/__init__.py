"""The HTTP API and the metrics in Prometheus's format."""
