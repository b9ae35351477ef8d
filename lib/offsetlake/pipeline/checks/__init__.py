"""The checks that gate the jobs: delta-rs counts rows that violate a rule, Great Expectations evaluates the numbers."""
