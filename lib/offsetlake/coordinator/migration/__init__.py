"""The requests of members to groups of any type, and the change of a group with members to the other protocol.

`requests` receives each request of a member and passes it on by the type of its group.
"""
