"""The content of the report and the results of checks, computed in child processes when tables have changed."""
