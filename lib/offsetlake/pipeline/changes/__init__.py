"""Changes that users request: cleanup, reset, restore, undelete, import, translation, repair of incomplete commits."""
