"""What came of writes to a log."""

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt


@dataclass(slots=True)
class Written:
    """One entry a write, by its number.

    | field      | is |
    |------------|----|
    | log_offset | where it stands in the log; -1: refused, or not known |
    | refused    | why it was refused |
    | told       | what a person should know of one that was done |
    """

    log_offset: npt.NDArray[np.int64]
    refused: dict[int, str] = field(default_factory=dict)
    told: dict[int, str] = field(default_factory=dict)
