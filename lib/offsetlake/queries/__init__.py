"""Questions about a lake: offsets at an instant, differences, lag and the prepared audits."""
