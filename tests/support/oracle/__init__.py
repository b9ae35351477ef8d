"""The test oracle: an independent, slow and plain reading of an offset log, and makers of logs to read.

Nothing here may import the package under test: what agrees with the oracle was computed twice.
"""
