"""Translates the offsets of one cluster to its replica in another, by MirrorMaker 2's topics and by records."""
