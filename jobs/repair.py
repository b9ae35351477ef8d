"""spark-submit entry of `offsetlake repair`: the same options, the same code."""

import sys

from offsetlake.cli.main import main

if __name__ == "__main__":
    main(["repair", *sys.argv[1:]])
