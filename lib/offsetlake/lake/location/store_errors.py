"""Explanations of what object stores answer, by the error codes of S3, and by the texts of the client libraries.

Source: "Error responses" in the API reference of Amazon S3.
"""

import re

_CODE = re.compile(r"<Code>(\w+)</Code>|\(code\W+(\w+)\)")
_REQUEST = re.compile(r"performing (GET|PUT|POST|DELETE|HEAD) (\S+)")
_BULK_DELETE = re.compile(r"DeleteObjects request failed for key")
_COLOR = re.compile(r"\x1b\[\d+m")
_VERBS = {"GET": "read", "HEAD": "read", "PUT": "write", "POST": "write", "DELETE": "delete"}

_CREDENTIALS = "the credentials are not accepted ({code}): check the environment, the profile or the role"
_EXPIRED = "the credentials have expired ({code}): renew them, and run the command again"
_REGION = "the bucket is in another region ({code}): set AWS_REGION to that of the bucket"
_UNAVAILABLE = (
    "the store is unavailable or slows requests down ({code}), also after retries: run the command again later"
)
_DENIED = "permission to {verb} objects is denied ({code}): grant it to the credentials for this bucket and prefix"
_CHECKSUM = (
    "the bucket has object lock, and requires a checksum with each put ({code}): set AWS_CHECKSUM_ALGORITHM=SHA256"
)
_EXPLANATIONS = {
    "NoSuchBucket": "the bucket does not exist ({code}): create it, or correct --lake",
    "AccessDenied": _DENIED,
    "AllAccessDisabled": _DENIED,
    "InvalidAccessKeyId": _CREDENTIALS,
    "SignatureDoesNotMatch": _CREDENTIALS,
    "InvalidToken": _CREDENTIALS,
    "ExpiredToken": _EXPIRED,
    "TokenRefreshRequired": _EXPIRED,
    "AuthorizationHeaderMalformed": _REGION,
    "PermanentRedirect": _REGION,
    "IllegalLocationConstraintException": _REGION,
    "RequestTimeTooSkewed": "the clock of this machine differs too much from that of the store ({code}): set the clock",
    "SlowDown": _UNAVAILABLE,
    "ServiceUnavailable": _UNAVAILABLE,
    "InternalError": _UNAVAILABLE,
    "NotImplemented": "the store lacks conditional puts ({code}), which the lake needs: use a store that has them",
}
_STATUS = {
    "401": "the credentials are not accepted (HTTP status 401): check them",
    "403": _DENIED.format(code="HTTP status 403", verb="{verb}"),
    "301": "the bucket is in another region (HTTP status 301): set AWS_REGION to that of the bucket",
    "503": _UNAVAILABLE.format(code="HTTP status 503"),
    "500": _UNAVAILABLE.format(code="HTTP status 500"),
}
_UNREACHABLE = re.compile(
    r"error sending request|connection refused|connect error|dns error|timed out|timeout|connection reset"
    r"|connection closed|HTTP error", re.IGNORECASE,
)  # fmt: skip


def explain(location: str, error: Exception) -> str:
    """Return what is wrong and what to do, if an error is that of a store; else an empty string.

    Secrets are in none of the texts that it uses: object stores answer with identifiers of keys at most, which are
    left out.
    """
    text = _COLOR.sub("", str(error)).partition("Debug source:")[0]
    verb = _verb(text)
    if not verb:
        return ""
    code = next((first or second for first, second in _CODE.findall(text)), "")
    why = ""
    if code == "InvalidRequest" and "Content-MD5" in text:
        why = _CHECKSUM.format(code=code)
    elif code in _EXPLANATIONS:
        why = _EXPLANATIONS[code].format(code=code, verb=verb)
    elif status := re.search(r"\b(401|403|301|503|500) [A-Z][a-z]", text):
        why = _STATUS[status[1]].format(verb=verb)
    elif _UNREACHABLE.search(text):
        why = f"the store cannot be reached (to {verb} objects): check the network, and AWS_ENDPOINT_URL if it is set"
    return f"the lake {location} cannot be used: {why}" if why else ""


def _verb(text: str) -> str:
    """Return what a request that failed was to do with objects, by the text of its error; empty if it was none."""
    if _BULK_DELETE.search(text):
        return "delete"
    request = _REQUEST.search(text)
    if not request:
        return ""
    method, url = request.groups()
    if method == "POST" and url.endswith(("?delete", "?delete=")):
        return "delete"
    return "list" if method == "GET" and "list-type=" in url else _VERBS.get(method, "use")
