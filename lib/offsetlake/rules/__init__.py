"""The rules of the offset lifecycle, as functions on Arrow tables: reduction, group state, retention, and resets."""
