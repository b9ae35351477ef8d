"""spark-submit entry of `offsetlake check`: the same options, the same code."""

import sys

from offsetlake.cli import main

if __name__ == "__main__":
    main(["check", *sys.argv[1:]])
