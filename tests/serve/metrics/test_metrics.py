"""What Prometheus is told is what was done: counted here by hand, and asked by what an operator would use."""

import json
import re
import threading
import time
from itertools import pairwise
from pathlib import Path

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from offsetlake.serve.metrics.durations import SECONDS, Histogram
from offsetlake.serve.storage.store import Store
from support.serve.http_client import ask, exchange, samples
from support.serve.mapped_snapshots import mapped_snapshot
from support.serve.serving import Serving
from support.serve.wire_client import OFFSET_COMMIT, OFFSET_FETCH, WireClient, frame, request

CONF = Path(__file__).parents[3] / "conf"


@pytest.fixture
def served(over_http: Serving) -> Serving:
    return over_http


def committing(group: str, topic: str, *partitions: int) -> dict[str, object]:
    rows = [{"partition_index": of, "committed_offset": 42, "committed_metadata": ""} for of in partitions]
    of = {"group_id": group, "generation_id": -1, "generation_id_or_member_epoch": -1, "member_id": ""}
    return of | {"topics": [{"name": topic, "partitions": rows}]}


def grown(before: dict[str, float], after: dict[str, float]) -> dict[str, float]:
    """What counts differ in, buckets and sums of durations aside."""
    counts = {name for name in after if re.match(r"offsetlake_\w+(_total|_count)\b", name)}
    return {name: after[name] - before.get(name, 0) for name in counts if after[name] != before.get(name, 0)}


@pytest.mark.slow
def test_counts_are_exact(served: Serving) -> None:
    before = samples(served.http)
    sent = received = 0
    with WireClient(served.bootstrap) as client:
        for number in range(5):  # the same again and again: the third is not read field by field any more
            data = frame(OFFSET_COMMIT, 5, number, request(OFFSET_COMMIT, 5, committing("g", "t", 0, 1, 2)))
            client.socket.sendall(data)
            sent += len(data) - 4
            received += len(client.receive()) - 4
        client.ask(OFFSET_COMMIT, 5, committing("g", "t", 3, -1, -2))  # of which two cannot be
        asked = {"group_id": "g", "topics": [{"name": "t", "partition_indexes": [0, 1]}]}
        for _ in range(4):
            client.ask(OFFSET_FETCH, 5, asked)
        client.ask(42, 1, {"groups_names": ("nobody", "g", "no one")})  # DeleteGroups
        client.ask(18, 0, {})
        now = samples(served.http)
        assert now["offsetlake_connections"] == 2  # the one that asks too
    found = grown(before, now)
    assert found.pop('offsetlake_request_bytes_total{api="OffsetCommit"}') > sent
    assert found.pop('offsetlake_response_bytes_total{api="OffsetCommit"}') > received
    assert {name for name in found if "_bytes_" in name} == {
        f'offsetlake_{way}_bytes_total{{api="{api}"}}'
        for way in ("request", "response")
        for api in ("OffsetFetch", "DeleteGroups", "ApiVersions")
    }
    assert {name: number for name, number in found.items() if "_bytes_" not in name and "http" not in name} == {
        'offsetlake_request_duration_seconds_count{api="OffsetCommit"}': 6,
        'offsetlake_request_duration_seconds_count{api="OffsetFetch"}': 4,
        'offsetlake_request_duration_seconds_count{api="DeleteGroups"}': 1,
        'offsetlake_request_duration_seconds_count{api="ApiVersions"}': 1,
        'offsetlake_errors_total{api="OffsetCommit",error="UNKNOWN_TOPIC_OR_PARTITION"}': 2,
        'offsetlake_errors_total{api="DeleteGroups",error="GROUP_ID_NOT_FOUND"}': 2,
        "offsetlake_committed_offsets_total": 16,
        "offsetlake_deleted_offsets_total": 4,
        "offsetlake_sync_duration_seconds_count": 7,
    }
    assert now["offsetlake_tail_log_offsets"] - before["offsetlake_tail_log_offsets"] == 16 + 4 + 1
    assert now['offsetlake_overlay_groups{layer="fresh"}'] - before['offsetlake_overlay_groups{layer="fresh"}'] == 1


@pytest.mark.slow
def test_what_http_writes_counts_as_all_else(served: Serving) -> None:
    before = samples(served.http)
    wanted = {"group": "by-http", "offsets": [exchange(None, 1, partition=0), exchange(None, 2, partition=1)]}
    assert [ask(served.http, "POST", "/v1/commit", wanted).status for _ in range(3)] == [200, 409, 409]
    ask(served.http, "GET", "/v1/made-up-by-somebody")
    found = grown(before, samples(served.http))
    assert found.pop('offsetlake_http_request_duration_seconds_count{method="GET",route="/metrics",status="200"}') == 1
    assert found == {
        "offsetlake_committed_offsets_total": 2,
        "offsetlake_sync_duration_seconds_count": 1,
        'offsetlake_http_request_duration_seconds_count{method="POST",route="/v1/commit",status="200"}': 1,
        'offsetlake_http_request_duration_seconds_count{method="POST",route="/v1/commit",status="409"}': 2,
        'offsetlake_http_request_duration_seconds_count{method="GET",route="none",status="404"}': 1,
    }


@pytest.mark.slow
def test_counts_of_many_connections_are_exact(served: Serving) -> None:
    before, threads, each = samples(served.http), 6, 50

    def commit(number: int) -> None:
        with WireClient(served.bootstrap) as client:
            for _ in range(each):
                client.ask(OFFSET_COMMIT, 5, committing(f"many-{number}", "t", 0, 1))

    running = [threading.Thread(target=commit, args=(number,)) for number in range(threads)]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()
    found = grown(before, samples(served.http))
    assert found['offsetlake_request_duration_seconds_count{api="OffsetCommit"}'] == threads * each
    assert found["offsetlake_committed_offsets_total"] == 2 * threads * each
    assert 0 < found["offsetlake_sync_duration_seconds_count"] <= threads * each


@pytest.mark.slow
def test_it_tells_of_the_snapshot(served: Serving) -> None:
    told, snapshot = samples(served.http), ask(served.http, "GET", "/v1/snapshot").body
    assert told["offsetlake_ready"] == 1
    assert told["offsetlake_snapshot_version"] == snapshot["version"]
    assert told["offsetlake_snapshot_offsets"] == snapshot["offsets"] > 0
    assert told["offsetlake_snapshot_groups"] == snapshot["groups"] > 0
    behind = sum(of["log_end"] - of["snapshot_end"] for of in snapshot["position"])
    assert told["offsetlake_tail_log_offsets"] == behind
    assert 0 < time.time() - told["offsetlake_snapshot_timestamp_seconds"] < 600
    assert 0 < told["offsetlake_load_duration_seconds"] < 60


@pytest.mark.slow
def test_names_have_help_units_and_the_forms_of_their_kinds(served: Serving) -> None:
    families = [*text_string_to_metric_families(ask(served.http, "GET", "/metrics").body)]
    ours = [family for family in families if family.name.startswith("offsetlake_")]
    for family in ours:
        assert family.documentation.endswith("."), family.name
        assert family.type in {"counter", "gauge", "histogram"}
        if family.type == "histogram":
            assert family.name.endswith("_seconds")
            buckets = [of for of in family.samples if of.name.endswith("_bucket")]
            for one, other in pairwise(buckets):
                if float(one.labels["le"]) < float(other.labels["le"]):
                    assert one.value <= other.value
    assert {"offsetlake_request_duration_seconds", "offsetlake_sync_duration_seconds"} <= {of.name for of in ours}


@pytest.mark.slow
def test_dashboard_and_alarms_ask_for_what_there_is(served: Serving) -> None:
    with WireClient(served.bootstrap) as client:
        client.ask(OFFSET_COMMIT, 5, committing("g", "t", -1))
    families = text_string_to_metric_families(ask(served.http, "GET", "/metrics").body)
    labels: dict[str, set[str]] = {"up": {"job"}}
    for family in families:
        for sample in family.samples:
            labels.setdefault(sample.name, set()).update(sample.labels)
    dashboard = json.loads((CONF / "grafana" / "offsetlake.json").read_text(encoding="utf-8"))
    asked = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    alarms = yaml.safe_load((CONF / "prometheus" / "alerts.yml").read_text(encoding="utf-8"))
    asked += [rule["expr"] for group in alarms["groups"] for rule in group["rules"]]
    assert len(asked) > 20
    for expression in asked:
        plain = re.sub(r'"[^"]*"|\[[^]]*\]', "", expression)
        names = set(re.findall(r"\b(?:offsetlake|process)_\w+|\bup\b", plain))
        assert names
        assert names <= labels.keys(), expression
        wanted = set(re.findall(r"[a-z_]+", " ".join(re.findall(r"\{[^}]*\}|by \([^)]*\)", plain))))
        known = set().union(*(labels[name] for name in names))
        assert wanted - {"by", "instance"} <= known, expression


def test_snapshots_that_are_taken_over_and_that_fail_are_counted() -> None:
    store = Store()
    store.load(mapped_snapshot({}))
    for _ in range(3):
        store.freeze()
        store.fold(mapped_snapshot({}))
    store.freeze()
    store.thaw()
    assert (store.folds, store.thaws) == (3, 1)


def test_a_duration_is_in_the_first_bucket_that_holds_it() -> None:
    histogram = Histogram()
    for seconds in (0.0, SECONDS[0], SECONDS[0] * 1.01, SECONDS[-1], SECONDS[-1] + 1):
        histogram.observe(seconds)
    assert [*map(histogram.counts.__getitem__, (0, 1, -2, -1))] == [2, 1, 1, 1]
    assert sum(histogram.counts) == 5
    assert histogram.total == pytest.approx(2.01 * SECONDS[0] + 2 * SECONDS[-1] + 1)
