"""Group coordination as a pure core: (state, request, time) to (records, replies, timers)."""
