"""The Delta tables: definitions, migrations, reads and writes.

Other packages access tables through this one. The only other imports of delta-rs are its file system for pyarrow in
`offsetlake.location.data_files`, and the type of a table in `offsetlake.report.numbers`.
"""
