"""Metrics compared with counts of the test, and with the names in the dashboard and the alerts."""

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
    """Return the differences of counters and of the counts of histograms."""
    counts = {name for name in after if re.match(r"offsetlake_\w+(_total|_count)\b", name)}
    return {name: after[name] - before.get(name, 0) for name in counts if after[name] != before.get(name, 0)}


@pytest.mark.slow
def test_counts_are_exact(served: Serving) -> None:
    before = samples(served.http)
    sent = received = 0
    with WireClient(served.bootstrap) as client:
        for number in range(5):  # repeated requests: the third takes the fast path
            data = frame(OFFSET_COMMIT, 5, number, request(OFFSET_COMMIT, 5, committing("g", "t", 0, 1, 2)))
            client.socket.sendall(data)
            sent += len(data) - 4
            received += len(client.receive()) - 4
        client.ask(OFFSET_COMMIT, 5, committing("g", "t", 3, -1, -2))  # two invalid partitions
        asked = {"group_id": "g", "topics": [{"name": "t", "partition_indexes": [0, 1]}]}
        for _ in range(4):
            client.ask(OFFSET_FETCH, 5, asked)
        client.ask(42, 1, {"groups_names": ("nobody", "g", "no one")})  # DeleteGroups
        client.ask(18, 0, {})
        now = samples(served.http)
        assert now["offsetlake_connections"] >= 2  # including that of the scrape; those of other tests end later
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
    assert (
        now['offsetlake_overlay_groups{layer="memtable"}'] - before['offsetlake_overlay_groups{layer="memtable"}'] == 1
    )


@pytest.mark.slow
def test_writes_over_http_are_counted(served: Serving) -> None:
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
def test_counts_of_concurrent_connections_are_exact(served: Serving) -> None:
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
def test_metrics_describe_the_snapshot(served: Serving) -> None:
    metrics, snapshot = samples(served.http), ask(served.http, "GET", "/v1/snapshot").body
    assert metrics["offsetlake_ready"] == 1
    assert metrics["offsetlake_snapshot_version"] == snapshot["version"]
    assert metrics["offsetlake_snapshot_offsets"] == snapshot["offsets"] > 0
    assert metrics["offsetlake_snapshot_groups"] == snapshot["groups"] > 0
    tail = sum(row["log_end"] - row["snapshot_end"] for row in snapshot["position"])
    assert metrics["offsetlake_tail_log_offsets"] == tail
    began = metrics["process_start_time_seconds"] - 1  # it is computed from whole seconds
    assert began < metrics["offsetlake_snapshot_timestamp_seconds"] < time.time()
    assert 0 < metrics["offsetlake_load_duration_seconds"] < time.time() - began


@pytest.mark.slow
def test_metrics_follow_the_naming_conventions_of_prometheus(served: Serving) -> None:
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
def test_dashboard_and_alerts_use_existing_metrics(served: Serving) -> None:
    with WireClient(served.bootstrap) as client:
        client.ask(OFFSET_COMMIT, 5, committing("g", "t", -1))
    families = text_string_to_metric_families(ask(served.http, "GET", "/metrics").body)
    labels: dict[str, set[str]] = {"up": {"job"}}
    for family in families:
        for sample in family.samples:
            labels.setdefault(sample.name, set()).update(sample.labels)
    dashboard = json.loads((CONF / "grafana" / "offsetlake.json").read_text(encoding="utf-8"))
    expressions = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    alerts = yaml.safe_load((CONF / "prometheus" / "alerts.yml").read_text(encoding="utf-8"))
    expressions += [rule["expr"] for group in alerts["groups"] for rule in group["rules"]]
    assert len(expressions) > 20
    for expression in expressions:
        plain = re.sub(r'"[^"]*"|\[[^]]*\]', "", expression)
        names = set(re.findall(r"\b(?:offsetlake|process)_\w+|\bup\b", plain))
        assert names
        assert names <= labels.keys(), expression
        wanted = set(re.findall(r"[a-z_]+", " ".join(re.findall(r"\{[^}]*\}|by \([^)]*\)", plain))))
        known = set().union(*(labels[name] for name in names))
        assert wanted - {"by", "instance"} <= known, expression


def test_successful_and_failed_refreshes_are_counted() -> None:
    store = Store()
    store.load(mapped_snapshot({}))
    for _ in range(3):
        store.begin_refresh()
        store.finish_refresh(mapped_snapshot({}))
    store.begin_refresh()
    store.merge_back()
    assert (store.refreshes, store.failed_refreshes) == (3, 1)


def test_duration_is_counted_in_the_first_bucket_that_contains_it() -> None:
    histogram = Histogram()
    for seconds in (0.0, SECONDS[0], SECONDS[0] * 1.01, SECONDS[-1], SECONDS[-1] + 1):
        histogram.observe(seconds)
    assert [*map(histogram.counts.__getitem__, (0, 1, -2, -1))] == [2, 1, 1, 1]
    assert sum(histogram.counts) == 5
    assert histogram.total == pytest.approx(2.01 * SECONDS[0] + 2 * SECONDS[-1] + 1)
