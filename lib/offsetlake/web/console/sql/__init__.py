"""SQL of visitors: each query runs in a process of its own, which ends with the query."""
