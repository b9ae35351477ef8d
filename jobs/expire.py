"""spark-submit entry of `offsetlake expire`: the same options, the same code."""

import sys

from offsetlake.cli.main import main

if __name__ == "__main__":
    main(["expire", *sys.argv[1:]])
