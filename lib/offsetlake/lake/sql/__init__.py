"""SQL over the tables of a lake: the engine, the views, statements of users, and other catalogs."""
