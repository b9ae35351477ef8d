"""Suggests groups and topics whose names are similar to one that the lake does not contain."""

from offsetlake.lake.lake import Lake
from offsetlake.lake.sql.engine import quoted

_LETTERS_PER_CHANGE = 4


def similar_group(lake: Lake, group_id: str | None) -> str:
    """Return a sentence with the most similar group that exists or has offsets, after a blank.

    Return an empty text if there is none, or if the group itself is there.
    """
    return _suggestion(lake, "group_id", group_id, "true", "groups", "offsets")


def similar_topic(lake: Lake, topic: str | None, group_id: str | None = None) -> str:
    """Return a sentence with the most similar topic with stored offsets, of a group or of any, as `similar_group`."""
    condition = "true" if group_id is None else f"group_id = {quoted(group_id)}"
    return _suggestion(lake, "topic", topic, condition, "offsets")


def _suggestion(lake: Lake, column: str, name: str | None, condition: str, *tables: str) -> str:
    """Search by the edit distance, in the engine: a lake can contain millions of names."""
    if name is None:
        return ""
    distance = f"levenshtein({column}, {quoted(name)})"
    limit = max(1, len(name) // _LETTERS_PER_CHANGE)
    every = " UNION ALL ".join(f"SELECT {column} FROM {table} WHERE {condition}" for table in tables)  # noqa: S608
    found = lake.query(
        f"SELECT {column} FROM ({every}) WHERE {distance} <= {limit} ORDER BY {distance}, {column} LIMIT 1",  # noqa: S608
        *tables,
    )
    similar = found[column].to_pylist()
    return f" Did you mean {similar[0]!r}?" if similar and similar != [name] else ""
