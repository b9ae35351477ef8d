"""spark-submit entry of `offsetlake rebuild`: the same options, the same code."""

import sys

from offsetlake.cli.main import main

if __name__ == "__main__":
    main(["rebuild", *sys.argv[1:]])
