"""spark-submit entry of `offsetlake maintain`: the same options, the same code."""

import sys

from offsetlake.cli.main import main

if __name__ == "__main__":
    main(["maintain", *sys.argv[1:]])
