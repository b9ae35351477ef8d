"""`emit`: writes planned tombstones and alterations to the log, if the newest state still allows them."""
