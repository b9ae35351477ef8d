"""The Delta tables of a lake, and where it is: definitions, migrations, reads and writes.

Other packages access tables through this one, the only one that imports delta-rs.
"""
