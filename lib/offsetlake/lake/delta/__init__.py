"""The Delta logs of the tables: opening them, committing to them, and telling commits of offsetlake from others."""
