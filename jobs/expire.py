"""Entry point of `offsetlake expire` for spark-submit, with the same options."""

import sys

from offsetlake.cli.main import main

if __name__ == "__main__":
    main(["expire", *sys.argv[1:]])
