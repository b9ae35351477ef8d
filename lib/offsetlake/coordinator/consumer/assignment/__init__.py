"""The target assignment of a group, the assignors that compute it, and how its members move towards it."""
