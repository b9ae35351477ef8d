"""Entry point of `offsetlake emit` for spark-submit, with the same options."""

import sys

from offsetlake.cli.main import main

if __name__ == "__main__":
    main(["emit", *sys.argv[1:]])
