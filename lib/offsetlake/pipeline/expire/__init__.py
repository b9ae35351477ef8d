"""`expire`: evaluates the retention rules and plans tombstones."""
