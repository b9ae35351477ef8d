"""`maintain`: compacts small files, vacuums unreferenced ones, and determines what of the log is still needed."""
