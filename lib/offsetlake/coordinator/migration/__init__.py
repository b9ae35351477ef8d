"""Groups with members of both protocols, and the change of a group with members to the other protocol."""
