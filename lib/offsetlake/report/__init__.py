"""The report of a lake as one HTML page with charts. Imported only by the command that writes it."""
