"""The results of writes to a log."""

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt


@dataclass(slots=True)
class Written:
    """The results of writes by their row number.

    | Field      | Description |
    |------------|-------------|
    | log_offset | The log offset of the record; -1 if the write was refused or the offset is unknown. |
    | refused    | The reason of each refused write. |
    | notes      | A note for people about a write that was made. |
    """

    log_offset: npt.NDArray[np.int64]
    refused: dict[int, str] = field(default_factory=dict)
    notes: dict[int, str] = field(default_factory=dict)
