"""HTTP: the server, the API, the metrics in Prometheus's text format, and the way to the console."""
