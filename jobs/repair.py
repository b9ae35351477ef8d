"""Entry point of `offsetlake repair` for spark-submit, with the same options."""

import sys

from offsetlake.cli.main import main

if __name__ == "__main__":
    main(["repair", *sys.argv[1:]])
