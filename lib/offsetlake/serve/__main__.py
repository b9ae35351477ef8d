"""The serving process: `python -m offsetlake.serve SETTINGS`, settings as JSON; `offsetlake serve` starts it."""

import logging
import sys

from offsetlake.errors import OffsetlakeError
from offsetlake.serve.server import serve
from offsetlake.serve.settings import Settings


def main() -> int:
    """Serve, and give the exit code."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s", stream=sys.stderr)
    try:
        serve(Settings.from_json(sys.argv[1]))
    except OffsetlakeError as error:
        sys.stderr.write(f"error: {error}\n")
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
