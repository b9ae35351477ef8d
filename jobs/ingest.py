"""Entry point of `offsetlake ingest` for spark-submit, with the same options."""

import sys

from offsetlake.cli.main import main

if __name__ == "__main__":
    main(["ingest", *sys.argv[1:]])
