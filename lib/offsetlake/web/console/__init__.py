"""Pages about a lake for a browser: groups, offsets, every commit of a partition, SQL, and changes if they are allowed.

Pages are rendered on the server, from answers that are cached by the versions of the tables they were read from. Users
sign in with tokens of a credentials file, and an ACL determines what they see (`offsetlake.auth`).
"""
