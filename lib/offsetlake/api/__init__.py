"""The Python API: questions about a lake, answered as Arrow tables without Spark."""
