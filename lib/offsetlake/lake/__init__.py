"""The Delta tables of a lake, and where it is: definitions, migrations, reads and writes.

Other packages access tables through this one. The only other import of delta-rs is the type of a table in
`offsetlake.report.numbers`.
"""
