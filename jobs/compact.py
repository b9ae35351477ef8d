"""spark-submit entry of `offsetlake compact`: the same options, the same code."""

import sys

from offsetlake.cli.main import main

if __name__ == "__main__":
    main(["compact", *sys.argv[1:]])
