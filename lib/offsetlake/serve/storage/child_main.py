"""Entry point of child processes: `python -m offsetlake.serve.storage.child_main MODULE`.

It passes the request to the function `handle` of the module and writes the answer
(`offsetlake.serve.storage.child_process`).
"""

import json
import sys
from importlib import import_module

from offsetlake.errors import OffsetlakeError
from offsetlake.util.processes import leave
from offsetlake.util.unused_libraries import absent

_ABSENT = ("pandas", "scipy")
"""Arrow and Numba import these if they are installed, which takes half a second; no child process uses them."""


def main() -> None:
    """Handle the request on standard input, write the answer to standard output and exit."""
    with absent(*_ABSENT):
        module = import_module(sys.argv[1])
        try:
            answer = module.handle(json.load(sys.stdin))
        except OffsetlakeError as error:
            answer = _answer(error)
        except Exception as error:
            from offsetlake.lake.data_files import damage_behind  # noqa: PLC0415 - not every child process reads a lake

            if (found := damage_behind(error)) is None:
                raise
            answer = _answer(found)
    json.dump(answer, sys.stdout)
    leave(0)


def _answer(error: OffsetlakeError) -> dict[str, str | int]:
    return {"error": str(error), "exit_code": error.exit_code}


if __name__ == "__main__":
    main()
