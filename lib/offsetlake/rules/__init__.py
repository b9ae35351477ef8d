"""The rules of the offset lifecycle, as functions over Arrow tables: reduction, group state, retention, resets."""
