"""The commands that answer questions about a lake, as tables, a page or a file."""
