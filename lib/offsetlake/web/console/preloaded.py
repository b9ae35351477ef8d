"""What the process loads from which the processes of the console are forked (`offsetlake.web.console.forked`)."""

from offsetlake.util.unused_libraries import load_arrow

load_arrow()
