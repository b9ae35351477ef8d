"""The metadata of a cluster: its brokers, topics and leaders, as the newest responses describe them."""
