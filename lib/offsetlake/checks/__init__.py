"""The checks that gate the jobs, as expectations of Great Expectations."""
