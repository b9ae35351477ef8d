"""ApiVersions: the APIs with their versions, and the features of this server."""

import re
from typing import Any

from offsetlake.kafka.error_codes import INVALID_REQUEST
from offsetlake.serve.auth.principals import RequestContext
from offsetlake.serve.protocol.api_keys import VERSIONS, version_range
from offsetlake.serve.protocol.encoding import Values

_SOFTWARE_SINCE = 3  # version of ApiVersions with the name and version of the client software
_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9.-]*[a-zA-Z0-9])?")  # as in ApiVersionsRequest.isValid of Kafka
_ZERO_FEATURE_SINCE = 4  # version of ApiVersions whose features may have the minimum version 0

FEATURES = {"transaction.version": 2, "share.version": 1}
"""Features and their levels: each end of a transaction increments the producer epoch (KIP-890), and there are share
groups (KIP-932)."""


def api_versions(request: Any, context: RequestContext) -> Values:
    """Answer ApiVersions, as a broker without a cluster."""
    if context.version >= _SOFTWARE_SINCE and not (
        _SOFTWARE.fullmatch(request.client_software_name) and _SOFTWARE.fullmatch(request.client_software_version)
    ):
        return {"error_code": INVALID_REQUEST, "api_keys": []}
    return {
        "api_keys": [version_range(api, versions) for api, versions in VERSIONS.items()],
        "supported_features": [
            {"name": name, "min_version": 0, "max_version": level}
            for name, level in (FEATURES.items() if context.version >= _ZERO_FEATURE_SINCE else ())
        ],
        "finalized_features": [
            {"name": name, "min_version_level": level, "max_version_level": level} for name, level in FEATURES.items()
        ],
        "finalized_features_epoch": 0,
    }
