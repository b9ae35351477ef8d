"""Pages about a lake for a browser, read only: groups, their offsets, and every commit of a partition."""
