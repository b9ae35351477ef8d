"""Entry point of `offsetlake run` for spark-submit, with the same options."""

import sys

from offsetlake.cli.main import main

if __name__ == "__main__":
    main(["run", *sys.argv[1:]])
