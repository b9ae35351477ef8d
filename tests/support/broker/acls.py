"""The permissions of the user `reader` of a broker."""

import time

from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

_SECONDS = 120


def allow(bootstrap: str, kind: ResourceType, name: str, operation: AclOperation) -> AclBindingFilter:
    """Permit an operation on one resource, wait until the broker applies that, and return the filter to undo it."""
    binding = (kind, name, ResourcePatternType.LITERAL, "User:reader", "*", operation, AclPermissionType.ALLOW)
    acl, same = AclBinding(*binding), AclBindingFilter(*binding)
    client = AdminClient({"bootstrap.servers": bootstrap})
    client.create_acls([acl])[acl].result(_SECONDS)
    deadline = time.monotonic() + _SECONDS
    while not client.describe_acls(same).result(_SECONDS):  # the controller knows it, the broker not yet
        assert time.monotonic() < deadline, f"the broker does not apply {acl}"
        time.sleep(0.02)
    return same
