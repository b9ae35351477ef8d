"""spark-submit entry of `offsetlake check`: the same options, the same code."""

import sys

from offsetlake.cli.main import main

if __name__ == "__main__":
    main(["check", *sys.argv[1:]])
