"""The routes of the console, a module for each kind of pages, with a function `add_routes`."""
