"""ListGroups, encoded without a schema and in steps, because a list can contain 100,000 groups."""

import struct
from collections import Counter
from typing import Any

from offsetlake.kafka.error_codes import COORDINATOR_LOAD_IN_PROGRESS, NONE
from offsetlake.serve.net.client import RequestContext
from offsetlake.serve.net.handlers import Handler, Respond
from offsetlake.serve.protocol import wire
from offsetlake.serve.protocol.api_keys import LIST_GROUPS
from offsetlake.serve.steps import Work
from offsetlake.serve.storage.group_details import GroupKind
from offsetlake.serve.storage.store import Store

_THROTTLE, _FLEXIBLE, _STATES, _TYPES = 1, 3, 4, 5
_CHUNK_GROUPS = 500  # groups that are joined, because many small parts take more memory
_INT16 = struct.Struct(">h")


def group_list(store: Store, errors: Counter[tuple[int, int]]) -> Handler:
    """Return the handler of ListGroups; `errors` are counted by API key and error code."""

    def handle(request: Any, context: RequestContext, respond: Respond) -> None:
        if store.loading:
            errors[LIST_GROUPS, COORDINATOR_LOAD_IN_PROGRESS] += 1
        context.client.work(_list(store, request, context, respond))

    return handle


def _list(store: Store, request: Any, context: RequestContext, respond: Respond) -> Work:
    """Answer ListGroups with the groups that the client may read.

    Filters are case-insensitive; a filter with only unknown values matches no group.
    """
    states = {name.lower() for name in getattr(request, "states_filter", ())}
    types = {name.lower() for name in getattr(request, "types_filter", ())}
    flexible = context.version >= _FLEXIBLE
    tags = b"\0" if flexible else b""
    suffixes: dict[tuple[object, ...], bytes] = {}  # the encoding after the name by kind, empty if it is excluded
    groups: list[bytes] = []
    chunks, count = [], 0
    for name, kind in () if store.loading else store.groups():
        yield 0
        if len(groups) >= _CHUNK_GROUPS:
            count += len(groups)
            chunks.append(b"".join(groups))
            groups.clear()
            yield len(chunks[-1])
        suffix = suffixes.get(values := tuple(kind.values()))
        if suffix is None:
            matches = (not states or kind["state"].lower() in states) and (not types or kind["group_type"] in types)
            suffix = suffixes[values] = _suffix(kind, context.version) if matches else b""
        if suffix and context.client.access.sees(name):
            groups.append(wire.string(name, flexible=flexible) + suffix)
    out = [tags, bytes(4) if context.version >= _THROTTLE else b""]
    out.append(_INT16.pack(COORDINATOR_LOAD_IN_PROGRESS if store.loading else NONE))
    out.append(wire.count(count + len(groups), flexible=flexible))
    respond((b"".join(out), *chunks, *groups, tags))
    return 0


def _suffix(kind: GroupKind, version: int) -> bytes:
    flexible = version >= _FLEXIBLE
    texts = [kind["protocol_type"] or ""]
    texts += [kind["state"]] if version >= _STATES else []
    texts += [kind["group_type"]] if version >= _TYPES else []
    return b"".join(wire.string(text.encode(), flexible=flexible) for text in texts) + (b"\0" if flexible else b"")
