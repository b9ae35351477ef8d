"""The Delta tables: definitions, migrations, reads, writes. The only room that knows Delta."""
