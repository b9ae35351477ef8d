"""`emit`: writes the planned tombstones to the log, if the newest state still allows it."""
