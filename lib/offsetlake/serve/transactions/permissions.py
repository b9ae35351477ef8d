"""The permissions of transactional ids."""

from offsetlake.auth.acl import COMMIT
from offsetlake.kafka.error_codes import GROUP_AUTHORIZATION_FAILED, NONE, TRANSACTIONAL_ID_AUTHORIZATION_FAILED
from offsetlake.serve.net.client import RequestContext


def denial(context: RequestContext, name: str, group: bytes | None = None) -> int:
    """Return the error code for a client that may not use a transactional id or the group, NONE if it may.

    The ACL of groups applies to transactional ids of the same names, too, as their users can fence one another.
    """
    if not context.may(COMMIT, name.encode()):
        return TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    return NONE if group is None or context.may(COMMIT, group) else GROUP_AUTHORIZATION_FAILED
