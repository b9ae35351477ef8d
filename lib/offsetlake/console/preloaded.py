"""What the process loads from which the processes of the console are forked (`offsetlake.console.forked`)."""

from offsetlake.util.absent import load_arrow

load_arrow()

import offsetlake.console.background  # noqa: E402
import offsetlake.console.sql.child  # noqa: E402
import offsetlake.pipeline.expire.offset_ages  # noqa: E402
import offsetlake.queries.history.diff  # noqa: E402, F401
