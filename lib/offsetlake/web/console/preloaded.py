"""What the process loads from which the processes of the console are forked (`offsetlake.web.console.forked`)."""

from offsetlake.util.absent import load_arrow

load_arrow()
