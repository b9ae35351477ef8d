"""Questions asked of a lake."""
