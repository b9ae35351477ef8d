"""ApiVersions: the APIs with their versions, and the features of this server."""

import re
from collections.abc import Mapping
from typing import Any

from offsetlake.kafka.error_codes import INVALID_REQUEST
from offsetlake.serve.net.client import RequestContext
from offsetlake.serve.protocol.api_keys import VERSIONS, version_range
from offsetlake.serve.protocol.encoding import Values

_SOFTWARE_SINCE = 3  # version of ApiVersions with the name and version of the client software
_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9.-]*[a-zA-Z0-9])?")  # as in ApiVersionsRequest.isValid of Kafka
_ZERO_FEATURE_SINCE = 4  # version of ApiVersions whose features may have the minimum version 0

FEATURES = {"transaction.version": 2, "share.version": 1}
"""Features and their levels: each end of a transaction increments the producer epoch (KIP-890), and there are share
groups (KIP-932)."""


_OWN_FEATURES: Values = {
    "supported_features": [{"name": name, "min_version": 0, "max_version": level} for name, level in FEATURES.items()],
    "finalized_features": [
        {"name": name, "min_version_level": level, "max_version_level": level} for name, level in FEATURES.items()
    ],
    "finalized_features_epoch": 0,
}


def api_versions(
    request: Any, context: RequestContext, versions: Mapping[int, range] = VERSIONS, features: Values = _OWN_FEATURES
) -> Values:
    """Answer ApiVersions, by default as a broker without a cluster."""
    if context.version >= _SOFTWARE_SINCE and not (
        _SOFTWARE.fullmatch(request.client_software_name) and _SOFTWARE.fullmatch(request.client_software_version)
    ):
        return {"error_code": INVALID_REQUEST, "api_keys": []}
    return {
        **features,
        "api_keys": [version_range(api, supported) for api, supported in versions.items()],
        "supported_features": [
            feature
            for feature in features["supported_features"]
            if feature["min_version"] or context.version >= _ZERO_FEATURE_SINCE
        ],
    }
