"""The JSON responses of the HTTP API."""

import json
from typing import Any

from starlette.responses import JSONResponse

from offsetlake.util.escaping import visible_json


class VisibleJSONResponse(JSONResponse):
    """A JSON response in which control characters, which clients may have sent, are escaped.

    They could control the terminal of a user who runs curl.
    """

    def render(self, content: Any) -> bytes:
        """Return the body."""
        return visible_json(json.dumps(content, ensure_ascii=False, separators=(",", ":"))).encode()
