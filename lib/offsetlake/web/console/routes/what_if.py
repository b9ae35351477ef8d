"""What any retention policy would expire, by group; the policy is edited on the page, and saved as TOML."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc
from fastapi import FastAPI, Response

from offsetlake.errors import BadRequest
from offsetlake.pipeline.expire.offset_ages import OffsetAges, offset_ages, unit_of
from offsetlake.pipeline.expire.policy_text import parse_policy, policy_text
from offsetlake.queries.selection import like
from offsetlake.rules.policy import RetentionPolicy
from offsetlake.util.times import kept_text, now_ms, to_iso
from offsetlake.web.console.access import Reader
from offsetlake.web.console.answers import PageAnswers
from offsetlake.web.console.pages import page_response
from offsetlake.web.console.routes.parameters import Text
from offsetlake.web.console.state import PAGE_ROWS, PageState, command_line, lake_options

_DAY_MS = 86_400_000
_MAX_DAYS = 90
_TABLES = ("offsets", "pending_offsets", "groups")
_POLICY = "policy.toml"


def add_routes(
    app: FastAPI, answers: PageAnswers, lake: str, configured: RetentionPolicy, source: Sequence[str]
) -> None:
    """Add the routes; `configured` is the policy of the settings, which `source` contains with the `lake`."""
    unit_ms = unit_of(configured)

    @app.get("/what-if")
    def what_if(visitor: Reader, policy: Text = "", q: Text = "", page: int = 1) -> Response:
        now = now_ms() // unit_ms * unit_ms
        shown = PageState(policy=policy, q=q, page=page)
        rows, message, chosen, counted = _GROUPS.empty_table(), "", configured, None
        try:
            chosen = parse_policy(policy, "policy") if policy else configured
            if (counted := answers.later("offset ages", _TABLES, partial(offset_ages, unit_ms=unit_ms))) is not None:
                rows = like(visitor.visible(_rows(counted, configured, chosen, now)), answers.pattern(shown, visitor))
        except BadRequest as error:
            message = str(error)
        first, days = (page - 1) * PAGE_ROWS, chosen.default_ms / _DAY_MS
        words = ("expire", "--what-if", *_policy_options(lake, source, configured, chosen))
        command = command_line(*words, group=shown.pattern, now=to_iso(now))
        response = page_response(
            "what_if.html", shown, command,
            rows=rows.slice(first, PAGE_ROWS).to_pylist(), more=rows.num_rows > page * PAGE_ROWS, message=message,
            text=policy or policy_text(configured), file=_POLICY, days=f"{days:.3g}" if days < 1 else round(days),
            max_days=_MAX_DAYS, now=now, totals=_totals(rows), counted=counted is not None,
            again_after=1 if counted is None and not message else None,
        )  # fmt: skip
        response.status_code = 400 if message else 200
        return response

    @app.get("/what-if/policy.toml")
    def saved(_visitor: Reader, policy: Text) -> Response:
        text = policy_text(parse_policy(policy, "policy"))
        headers = {"Content-Disposition": f'attachment; filename="{_POLICY}"'}
        return Response(text, media_type="application/toml", headers=headers)


_GROUPS = pa.schema(
    [
        ("group_id", pa.string()), ("state", pa.string()), ("offsets", pa.int64()), ("now", pa.int64()),
        ("then", pa.int64()), ("difference", pa.int64()), ("goes", pa.bool_()),
    ]
)  # fmt: skip


def _rows(ages: OffsetAges, configured: RetentionPolicy, chosen: RetentionPolicy, now: int) -> pa.Table:
    """Return the groups with expired offsets, those with the largest differences between two policies first.

    Columns: group_id, state, offsets; now and then, the numbers of offsets that are expired with the configured and the
    chosen policy; their difference; and goes, whether the group itself is deleted with the chosen policy.
    """
    present, expired = ages.expired(configured, now), ages.expired(chosen, now)
    columns = {name: ages.groups[name] for name in ("group_id", "state", "offsets")}
    counts = {"now": present, "then": expired, "difference": expired - present, "goes": ages.deleted(expired)}
    rows = pa.table({**columns, **counts}).cast(_GROUPS)
    rows = rows.filter(pc.or_(pc.greater(rows["now"], 0), pc.or_(pc.greater(rows["then"], 0), rows["goes"])))
    rows = rows.append_column("distance", pc.abs(rows["difference"]))
    order = [("distance", "descending"), ("then", "descending"), ("group_id", "ascending")]
    return rows.sort_by(order).drop_columns(["distance"])


def _totals(rows: pa.Table) -> dict[str, int]:
    counts = {name: pc.sum(rows[name]).as_py() or 0 for name in ("now", "then", "goes")}
    return counts | {"groups": pc.sum(pc.greater(rows["then"], 0)).as_py() or 0}


def _policy_options(
    lake: str, source: Sequence[str], configured: RetentionPolicy, chosen: RetentionPolicy
) -> Sequence[str]:
    """Return the options with the lake and a policy; one that differs by more than its default is read from a file."""
    if chosen != replace(configured, default_ms=chosen.default_ms):
        return (f"--lake={lake}", f"--config={_POLICY}")
    options = lake_options(source)
    return options if chosen == configured else [*options, f"--retention={kept_text(chosen.default_ms)}"]
