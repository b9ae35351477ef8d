"""Entry point of `offsetlake compact` for spark-submit, with the same options."""

import sys

from offsetlake.cli.main import main

if __name__ == "__main__":
    main(["compact", *sys.argv[1:]])
