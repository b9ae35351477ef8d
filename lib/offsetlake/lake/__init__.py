"""The Delta tables: definitions, migrations, reads, writes. The only package that imports delta-rs."""
