"""Pages about a lake for a browser: groups, offsets, every commit of a partition, SQL, and changes if they are allowed.

Pages are rendered on the server, from answers that are cached by the versions of the tables they were read from. Users
sign in with the credentials of the serving process, and its ACL determines what they see.
"""
