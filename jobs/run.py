"""spark-submit entry of `offsetlake run`: the same options, the same code."""

import sys

from offsetlake.cli.main import main

if __name__ == "__main__":
    main(["run", *sys.argv[1:]])
