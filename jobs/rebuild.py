"""Entry point of `offsetlake rebuild` for spark-submit, with the same options."""

import sys

from offsetlake.cli.main import main

if __name__ == "__main__":
    main(["rebuild", *sys.argv[1:]])
