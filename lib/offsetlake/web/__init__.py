"""What people and tools see over HTTP: the API of a serving process, the console and the report."""
