"""Runs the command line with `python -m offsetlake.cli`."""

from offsetlake.cli.main import main

main()
