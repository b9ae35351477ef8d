"""spark-submit entry of `offsetlake ingest`: the same options, the same code."""

import sys

from offsetlake.cli.main import main

if __name__ == "__main__":
    main(["ingest", *sys.argv[1:]])
