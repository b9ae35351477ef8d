"""The report: what a lake says, as one page with pictures. Imported only when somebody asks for it."""
