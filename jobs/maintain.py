"""Entry point of `offsetlake maintain` for spark-submit, with the same options."""

import sys

from offsetlake.cli.main import main

if __name__ == "__main__":
    main(["maintain", *sys.argv[1:]])
