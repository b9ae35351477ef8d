"""Questions about a lake, each answered as an Arrow table: state, history, lag, share groups, audits and runs."""
