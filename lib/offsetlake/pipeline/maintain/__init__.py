"""`maintain` and `forget`: delete segments and history that are no longer needed, compact and vacuum the tables."""
