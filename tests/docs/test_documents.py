"""Every example of every document runs as written after `make run`, and prints what the document shows.

`pytest tests/docs/test_documents.py --refresh-examples` writes what the examples print now into the documents.
"""

import re
import shutil
import subprocess
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from offsetlake.lake.sql.views import views
from offsetlake.pipeline import runner
from support.broker import workload
from support.broker.broker import Broker
from support.documents import (
    NOTES,
    ROOT,
    Example,
    Shell,
    check_command,
    elsewhere,
    examples,
    in_checkout,
    in_help,
    in_sentences,
    unknown_blocks,
)
from support.e2e.in_process import NoSpark
from support.serve.secured import secured

NOT_RUN = {"cli.md", "tables.md"}  # examples of the help
README = ROOT / "README.md"
DOCUMENTS = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md")),
    *(path for path in sorted((ROOT / "docs").glob("*.md")) if path.name not in NOT_RUN),
]
LONG = {
    README,
    *(ROOT / "docs" / f"{name}.md" for name in ["getting-started", "operating", "http", "fleet", "console", "audits"]),
}
WITH_EXAMPLES = [
    pytest.param(path, marks=pytest.mark.long if path in LONG else ())
    for path in DOCUMENTS
    if any(examples(path.read_text(encoding="utf-8")))
]
AUDITS, OPERATING = (ROOT / "docs" / name for name in ("audits.md", "operating.md"))
NEEDS_ROOT = "needs root and systemd"
NEEDS_SHARE_GROUPS = "needs a cluster with share groups; tests/e2e/live/test_live_share_groups.py has one"
ELSEWHERE = {
    "make setup ": "installs the environment that this test runs in",
    "make test": "runs this test",
    "offsetlake --install-completion": "changes a start-up file; see tests/cli/test_completion.py",
    "make check ": "is the first part of `make test`",
    "make format ": "changes the checkout",
    "make docs ": "changes the checkout; tests/docs/test_generated_pages.py checks its result",
    "make airflow ": "does not end; tests/dags/test_page.py runs it",
    ".venv/bin/python -m pytest ": "runs this test",
    "make release": "commits and tags; tests/docs/test_release.py runs it in a copy",
    ".venv/bin/pre-commit install": "changes the checkout's Git hooks; tests/docs/test_release.py runs the hook",
    "make .tools/": "takes a minute; the tests that need it are skipped without it",
    "GOBIN=": "takes minutes; the tests that need it are skipped without it",
    ".venv/bin/offsetlake report ": "draws a picture for the documents",
    "chromium ": "draws a picture for the documents",
    "spark-submit ": "needs a Spark cluster; tests/e2e/deployment/test_cluster.py has one",
    "OFFSETLAKE_SPARK_REMOTE=": "needs a Spark Connect server; tests/e2e/deployment/test_cluster.py has one",
    "  jobs/run.py ": "continues the line before",
    "  --add-config ": "continues the line before",
    "export OFFSETLAKE_FLEET=": "needs Airflow; tests/dags/test_fleet.py does the same",
    "python lake_fleet.py ": "as above",
    "airflow pools import ": "as above",
    "spark-sql ": "creates a metastore; tests/lake/sql/test_catalogs.py runs the statements",
    "export AWS_": "needs a bucket; tests/e2e/deployment/test_object_store.py has one",
    "offsetlake run --lake s3:": "needs a bucket",
    "offsetlake offsets billing --lake s3:": "needs a bucket",
    "offsetlake serve --lake s3:": "needs a bucket",
    "offsetlake adopt --config ": "needs a cluster of its own; tests/serve/node/test_takeover.py has one",
    "offsetlake return --config ": "needs a cluster of its own; tests/serve/node/test_takeover.py has one",
    "offsetlake import zookeeper://": "needs ZooKeeper; tests/zookeeper has one",
    "offsetlake export zookeeper://": "needs ZooKeeper; tests/zookeeper has one",
    "offsetlake serve --config /etc/": "does not end",
    "offsetlake credentials token carol ": "belongs to the next line",
    "offsetlake console --fleet ": "does not end; tests/console/test_clusters.py runs it",
    "offsetlake console --lake /lakes/prod ": "needs a certificate; tests/console/test_access.py has one",
    "offsetlake translate ": "needs two clusters and MirrorMaker 2; tests/e2e/live/test_translate.py has them",
    "offsetlake lag --lake /lakes/prod --standby ": "needs two clusters; tests/e2e/live/test_translate.py has them",
    "offsetlake serve --lake /lakes/share ": "does not end; tests/serve/share has a cluster",
    "  --kafka-config client.properties ": "continues the line before",
    "kafka-console-share-consumer.sh ": "does not end; tests/serve/share/test_share_consumers.py runs it",
    "kafka-configs.sh ": "needs a cluster; tests/serve/share/test_group_configs.py runs it",
    "offsetlake reset thumbnailer ": NEEDS_SHARE_GROUPS,
    "offsetlake restore thumbnailer ": NEEDS_SHARE_GROUPS,
    "offsetlake cleanup thumbnailer ": NEEDS_SHARE_GROUPS,
    "trino ": "needs a Trino cluster",
    "duckdb ": "downloads an extension; tests/lake/sql/test_catalogs.py runs the statements with a substitute",
    "make dist": "installs into a system; Makefile's target is run by `make test`",
    "useradd ": NEEDS_ROOT,
    "python3.11 -m venv /opt/offsetlake": NEEDS_ROOT,
    "/opt/offsetlake/bin/pip install --require-hashes ": NEEDS_ROOT,
    "/opt/offsetlake/bin/pip install --no-deps ": NEEDS_ROOT,
    "cp conf/systemd/offsetlake.service ": NEEDS_ROOT,
    "systemctl enable ": NEEDS_ROOT,
    "systemctl stop ": NEEDS_ROOT,
    "systemctl start ": NEEDS_ROOT,
    "offsetlake reset billing --all-topics --shift-by -100 --live ": "needs consumers; "
    "tests/serve/groups/test_live_rewind.py has some",
    "flock /var/lib/offsetlake/lake/lock cp ": "copies what a stopped service has left",
}
"""Why command lines marked `sh elsewhere` cannot run in the tests, by the beginnings of these lines."""

OTHER_SERVERS = (
    "offsetlake import zookeeper://",
    "offsetlake export zookeeper://",
    "offsetlake translate ",
    "offsetlake lag --lake /lakes/prod --standby ",
)
"""The beginnings of examples of the help that need ZooKeeper or two clusters; `ELSEWHERE` names their tests."""

WITH_A_JVM = ("make spark-sql", "spark-sql ")
"""The beginnings of examples that start a JVM, which takes half a minute; `test_spark_sql` runs them."""

pytestmark = [pytest.mark.slow, pytest.mark.broker]


@pytest.fixture(scope="session")
def cluster(broker: Broker) -> str:
    """Return the address of a cluster in which the group checkout has read from the topic carts."""
    workload.create_topic(broker.bootstrap, "carts", 2)
    workload.produce(broker.bootstrap, "carts", 5)
    workload.simple_commit(broker.bootstrap, "checkout", {("carts", 0): 3, ("carts", 1): 0})
    return broker.bootstrap


@pytest.fixture
def shell(cluster: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Shell]:
    """Return a shell after `make run`, in which a copy of a broker's folder and a service's settings exist."""
    monkeypatch.setattr(runner, "LazySession", NoSpark)
    shutil.copytree(ROOT / "tests" / "fixtures" / "broker-log", tmp_path / "backup" / "kafka-data")
    with in_checkout(tmp_path, {"broker-1:9092": cluster}) as made:
        yield made


def installed(shell: Shell, folder: Path) -> None:
    """Make what docs/operating.md has installed: settings, certificates, and a lake and a log of the service."""
    settings, acl = re.findall(r"^```toml\n(.*?)^```$", OPERATING.read_text("utf-8"), re.MULTILINE | re.DOTALL)
    own, state = folder / "etc" / "offsetlake", folder / "var" / "lib" / "offsetlake"
    own.mkdir(parents=True)
    state.mkdir(parents=True)
    secured(own)
    shutil.move(own / "credentials.json", state)
    (own / "acl.toml").write_text(acl, encoding="utf-8")
    (own / "offsetlake.toml").write_text(re.sub(r"(?<=\")/(?=etc|var)", f"{folder}/", settings), encoding="utf-8")
    assert shell.run("offsetlake example /var/lib/offsetlake/log").code == 0
    assert shell.run("offsetlake run --config /etc/offsetlake/offsetlake.toml").code == 0


def name(document: Path) -> str:
    return str(document.relative_to(ROOT))


def failures(shell: Shell, found: Iterable[Example]) -> Iterator[str]:
    """Run examples one after the other; return what went wrong."""
    for command, output in found:
        if command.startswith(WITH_A_JVM):
            continue
        done = shell.run(command)
        if done.code or "Error: " in done.out:  # with which Kafka's tools end with 0
            yield f"{command}\nended with {done.code}: {done.err or done.out}"
        elif output is not None and (printed := plain(done.out)) != output:
            yield f"{command}\nprinted:\n{printed}"


def plain(printed: str) -> str:
    """Return an output without the spaces at the ends of its lines."""
    return "".join(f"{line.rstrip()}\n" for line in printed.splitlines())


def refreshed(shell: Shell, text: str) -> str:
    """Return a document with the outputs that its examples print now."""
    for command, output in examples(text):
        printed = shell.run(command).out if not command.startswith(WITH_A_JVM) else ""
        if output is not None:
            text = text.replace(f"$ {command}\n{output}", f"$ {command}\n{plain(printed)}")
    return text


@pytest.mark.parametrize("document", WITH_EXAMPLES, ids=name)
def test_examples_of_a_document(shell: Shell, tmp_path: Path, document: Path, pytestconfig: pytest.Config) -> None:
    if document != README:
        assert shell.run("make example").code == 0
    if document == OPERATING:
        installed(shell, tmp_path)
    text = document.read_text(encoding="utf-8")
    if pytestconfig.getoption("refresh_examples"):
        document.write_text(refreshed(shell, text), encoding="utf-8")
    else:
        assert not [*failures(shell, examples(text))]


@pytest.mark.long
def test_examples_of_the_help(shell: Shell, tmp_path: Path) -> None:
    assert shell.run("make example").code == 0
    shutil.copytree("example", "made")
    installed(shell, tmp_path)
    wrong = []
    for command, found in in_help().items():
        assert found, f"the help of {command} shows no example"
        if any("example/" in each.command for each in found):
            shutil.rmtree("example", ignore_errors=True)
            shutil.copytree("made", "example")
        not_here = [each for each in found if needs_more(each.command)]
        wrong += failures(shell, [each for each in found if each not in not_here])
        shell.stop_serving()
        for each in not_here:
            check_command(each.command)
    assert not wrong


def needs_more(command: str) -> bool:
    """Return whether an example needs a cluster or ZooKeeper, which tests of its own have."""
    return command.startswith(OTHER_SERVERS) or "--cluster" in command or "--share" in command


@pytest.mark.long
@pytest.mark.jvm
def test_spark_sql(shell: Shell) -> None:
    found = [of.command for of in examples(AUDITS.read_text(encoding="utf-8")) if of.command.startswith(WITH_A_JVM)]
    assert [command.split()[:2] for command in found] == [
        ["make", "spark-sql"], ["make", "spark-sql"], ["spark-sql", "--driver-class-path"],
    ]  # fmt: skip
    assert shell.run("make example").code == 0
    run_by_make = shell.run(f"{found[0]} -n -o setup -o .jars/spark/.ready").out.splitlines()
    command = found[2].removesuffix(" -e 'SHOW VIEWS'")
    assert f"PYSPARK_PYTHON=.venv/bin/python .venv/bin/{command}" in run_by_make  # not that of the PATH
    asked = shell.run(f"echo 'SHOW VIEWS; SELECT group_id, records_again FROM regressions;' | {found[1]} -o setup")
    assert asked.code == 0, asked.err
    assert "double_writers" in asked.out
    assert "billing\t170" in asked.out.splitlines()


def test_what_cannot_run_here_is_listed_with_its_reason() -> None:
    lines = [line for path in DOCUMENTS for line in elsewhere(path.read_text(encoding="utf-8"))]
    assert [line for line in lines if not line.startswith((*ELSEWHERE,))] == []
    assert [start for start in ELSEWHERE if not any(line.startswith(start) for line in lines)] == []


@pytest.mark.parametrize("document", [*DOCUMENTS, *NOTES], ids=name)
def test_blocks_and_sentences(document: Path) -> None:
    text = document.read_text(encoding="utf-8")
    assert unknown_blocks(text) == set()
    for command in in_sentences(text):
        check_command(command)


def test_every_target_of_make_that_is_named_is_listed_by_make() -> None:
    listed = subprocess.run(["make", "-s"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    pattern = re.compile(r"(?:^|`)make ([a-z-]+)", re.MULTILINE)
    named = {target for path in (*DOCUMENTS, *NOTES) for target in pattern.findall(path.read_text(encoding="utf-8"))}
    assert {"run", "example", "spark-sql", "airflow"} <= named
    assert {target for target in named if f"make {target} " not in listed} == set()


def test_a_command_that_does_not_exist_is_found() -> None:
    with pytest.raises(KeyError):
        check_command("offsetlake sevre --check")
    with pytest.raises(Exception, match="--chekc"):
        check_command("offsetlake serve --chekc")


def test_what_goes_wrong_with_an_example_is_found(shell: Shell) -> None:
    wrong = [Example("offsetlake history"), Example("offsetlake groups --group bulk-1 --format csv", "group\n")]
    assert [text.splitlines()[1] for text in failures(shell, wrong)] == [
        "ended with 2: error: Missing option '--group'.", "printed:",
    ]  # fmt: skip


def test_every_view_has_an_example() -> None:
    text = AUDITS.read_text(encoding="utf-8")
    shown = " ".join(of.command for of in examples(text))
    assert [view for view in views() if f"### {view}\n" not in text or view not in shown] == []
