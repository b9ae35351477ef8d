"""Compares the decisions of an evaluation with those of earlier ones."""

from collections.abc import Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from offsetlake.lake.history.history_files import ALL_RUNS
from offsetlake.pipeline.emit.decisions import BY_HAND, TOMBSTONE
from offsetlake.rules.retention import Bools
from offsetlake.util.row_codes import among, same_codes

_EVIDENCE = ("rule", "clock_timestamp", "retention_ms")


def oldest_planned(new: pa.Table, previous: pa.Table, ended: Mapping[str, pa.Table]) -> int:
    """Return the oldest run of the tombstones that are planned after an evaluation; ALL_RUNS if there is none."""
    planned = previous.filter(pc.equal(previous["outcome"], "planned"))
    for decisions in (new, *ended.values()):
        planned = planned.filter(pa.array(~among(planned, decisions, TOMBSTONE)))
    oldest = pc.min(pa.concat_tables([new, planned])["run_id"]).as_py()
    return ALL_RUNS if oldest is None else int(oldest)


def compare(expiring: pa.Table, previous: pa.Table, exists: Bools) -> tuple[pa.Table, dict[str, pa.Table]]:
    """Return the new decisions of `expiring`, and the planned decisions of `previous` that end, by outcome.

    `exists` is whether the offset or group of each previous decision still exists. Plans of users do not end.
    """
    both = pa.concat_tables([expiring, previous])
    planned = pc.equal(previous["outcome"], "planned").to_numpy()
    by_hand = pc.equal(previous["rule"], BY_HAND).to_numpy()
    new_codes, old_codes = np.split(same_codes(both, TOMBSTONE), [expiring.num_rows])
    new_evidence, old_evidence = np.split(same_codes(both, (*TOMBSTONE, *_EVIDENCE)), [expiring.num_rows])
    known = np.isin(new_codes, old_codes[~planned | by_hand]) | np.isin(new_evidence, old_evidence[planned])
    ended = {"withdrawn": planned & exists & ~by_hand & ~np.isin(old_codes, new_codes), "gone": planned & ~exists}
    new = expiring.filter(pa.array(~known))
    return new, {outcome: previous.filter(pa.array(rows)) for outcome, rows in ended.items()}
