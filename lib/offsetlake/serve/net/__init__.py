"""Connections: accepting them, authenticating their clients, and handling their requests in turns."""
