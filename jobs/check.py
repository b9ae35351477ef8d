"""Entry point of `offsetlake check` for spark-submit, with the same options."""

import sys

from offsetlake.cli.main import main

if __name__ == "__main__":
    main(["check", *sys.argv[1:]])
