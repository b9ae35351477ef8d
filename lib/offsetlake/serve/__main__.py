"""Entry point of the serving process: `python -m offsetlake.serve SETTINGS`, with the settings as JSON.

`offsetlake serve` starts it.
"""

import os
import sys

from offsetlake.util.memory_limit import choose_allocators

choose_allocators()

from offsetlake.errors import OffsetlakeError  # noqa: E402
from offsetlake.serve.server import serve  # noqa: E402
from offsetlake.serve.settings import Settings, with_secrets  # noqa: E402
from offsetlake.util.escaping import visible  # noqa: E402
from offsetlake.util.log_lines import log_to_stderr  # noqa: E402
from offsetlake.util.processes import open_standard_streams  # noqa: E402


def main() -> int:
    """Serve until the process is stopped, and return the exit code."""
    open_standard_streams()
    settings = with_secrets(Settings.from_json(sys.argv[1]), os.environ)
    log_to_stderr(settings.log_format)
    try:
        serve(settings)
    except OffsetlakeError as error:
        sys.stderr.write(f"error: {visible(str(error))}\n")
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
