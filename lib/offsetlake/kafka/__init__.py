"""Bytes to columns and back: record schemas, record batches, group placement. No Spark, no Delta, no sockets."""
