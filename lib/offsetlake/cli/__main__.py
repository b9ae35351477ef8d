"""Runs the command line: `python -m offsetlake.cli`."""

from offsetlake.cli.main import main

main()
