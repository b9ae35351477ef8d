"""Connections: accepting them, logging them in, and handling their requests in turns."""
