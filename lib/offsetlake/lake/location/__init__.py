"""Locations of lakes: folders, and prefixes of buckets in object stores."""
