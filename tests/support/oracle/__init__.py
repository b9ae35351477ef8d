"""The test oracle: an independent, simple reader of offset logs, and generators of logs.

It must not import the package under test, so that results are computed twice.
"""
