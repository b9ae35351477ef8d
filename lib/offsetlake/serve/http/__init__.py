"""The HTTP API, and the metrics in Prometheus's text format."""
