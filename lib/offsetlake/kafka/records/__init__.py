"""Records of the coordinator topics as Kafka's message schemas define them, decoded and encoded one at a time."""
