"""spark-submit entry of `offsetlake emit`: the same options, the same code."""

import sys

from offsetlake.cli.main import main

if __name__ == "__main__":
    main(["emit", *sys.argv[1:]])
