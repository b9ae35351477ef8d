"""Sources of settings, their precedence, and errors of invalid settings."""

from pathlib import Path

import pytest

from offsetlake import open_snapshot
from offsetlake.cli.config import Config, load
from offsetlake.errors import BadRequest
from offsetlake.lake.location.folder import Folder
from offsetlake.lake.upkeep import VacuumRetention
from offsetlake.log.cluster.connection import KafkaConnection
from offsetlake.rules.policy import Keep, Override, RetentionPolicy

SECOND = '[[retention.override]]\ngroup = "b"\n'
OVERRIDE = '[retention]\ndefault = "7d"\n[[retention.override]]\n'


def write(folder: Path, text: str, name: str = "settings.toml") -> str:
    file = folder / name
    file.write_text(text, encoding="utf-8")
    return str(file)


def test_defaults() -> None:
    week = 7 * 86_400_000
    serve = {
        "kafka": "127.0.0.1:9092",
        "log_format": "text",
        "flush": "always",
        "log_partitions": "50",
        "commits_recorded": "0.01",
    }
    assert load({}, {}) == Config(
        Folder(Path("lake")),
        None,
        None,
        "table",
        kafka={},
        retention=RetentionPolicy(week),
        vacuum_retention=VacuumRetention(others_ms=week, state_ms=week // 7),
        keep=Keep(),
        serve=serve,
        spark={},
        console={},
    )


def test_overrides_are_read_in_order(tmp_path: Path) -> None:
    overrides = """
[[retention.override]]
group = "billing-*"
retention = "30d"
[[retention.override]]
topic = "audit.[ab]"
group = "*"
retention = "90m"
"""
    file = write(tmp_path, f'[retention]\ndefault = "36h"\n{overrides}')
    assert load({"config": file}, {}).retention == RetentionPolicy(
        36 * 3_600_000, (Override("billing-*", "*", 30 * 86_400_000), Override("*", "audit.[ab]", 5_400_000))
    )


def test_time_of_idle_share_groups_is_read(tmp_path: Path) -> None:
    file = write(tmp_path, '[retention]\nshare_idle = "30d"')
    week, month = 7 * 86_400_000, 30 * 86_400_000
    assert load({"config": file}, {}).retention == RetentionPolicy(week, share_idle_ms=month)


def test_overrides_without_default_keep_the_built_in_default(tmp_path: Path) -> None:
    file = write(tmp_path, '[[retention.override]]\ngroup = "[]a]"\nretention = "1d"')
    assert load({"config": file}, {}).retention == RetentionPolicy(7 * 86_400_000, (Override("[]a]", "*", 86_400_000),))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (
            '\n[retention]\ndefault = "7d"\nweeks = 1',
            "line 4: weeks: unknown key. Known: default, override, share_idle",
        ),
        ("retention = 7", "line 1: retention: expected a table [retention] with default and [[retention.override]]"),
        ('retention = "7d"', "line 1: retention: expected a table [retention]"),
        ("[retention]\nshare_idle = 30", "line 2: share_idle: a duration must be a string such as '7d'"),
        ("[retention]\ndefault = 7", "line 2: default: a duration must be a string such as '7d'"),
        (
            '[retention]\ndefault = "999999999999d"',
            "line 2: default: Invalid duration 999999999999d",
        ),
        ('[retention]\noverride = ["a"]', "line 2: override: expected one [[retention.override]] for each"),
        (f'{OVERRIDE}group = "[z-a]"\nretention = "1d"', "line 4: group: the pattern '[z-a]' matches nothing"),
        (
            '[retention]\n\ndefault = "7 days"',
            "line 3: default: Invalid duration '7 days': expected a whole number and ms",
        ),
        (
            '[retention]\ndefault = "7d"\n[retention.override]\ngroup = "a"',
            "line 3: override: expected one [[retention.over",
        ),
        (f'{OVERRIDE}group = "a"\nretention = "1y"', "line 5: retention: Invalid duration '1y'"),
        (f'{OVERRIDE}grp = "a"\nretention = "1d"', "line 4: grp: unknown key. Known: group, topic, retention"),
        (f'{OVERRIDE}group = "a[b"\nretention = "1d"', "line 4: group: the pattern 'a[b' has a [ without a closing ]"),
        (f'{OVERRIDE}topic = ""\nretention = "1d"', "line 4: topic: a pattern must be a string that is not empty"),
        (f'{OVERRIDE}retention = "1d"', "line 3: override: an override needs a retention, and a group or a topic"),
        (f'{OVERRIDE}group = "a"\n', "line 3: override: an override needs a retention"),
        (
            f'{OVERRIDE}group = "a"\nretention = "1d"\n{SECOND}retention = -1',
            "line 8: retention: a duration must be a string",
        ),
    ],
)
def test_invalid_retention_is_an_error_with_its_line(tmp_path: Path, text: str, says: str) -> None:
    file = write(tmp_path, text)
    with pytest.raises(BadRequest) as failed:
        load({"config": file}, {})
    assert f"{file}, {says}" in str(failed.value)


def test_each_source_overrides_the_previous_one(tmp_path: Path) -> None:
    file = write(tmp_path, 'lake = "of-file"\nformat = "csv"')
    environment = {"OFFSETLAKE_LAKE": "of-environment", "PATH": "/bin"}
    assert load({"config": file}, {}).lake == Folder(Path("of-file"))
    assert load({"config": file}, environment).lake == Folder(Path("of-environment"))
    assert load({"config": file, "lake": "of-option"}, environment).lake == Folder(Path("of-option"))
    assert load({"config": file, "lake": None}, environment).format == "csv"


def test_environment_selects_the_settings_file(tmp_path: Path) -> None:
    named, other = write(tmp_path, 'lake = "a"'), write(tmp_path, 'lake = "b"', "other.toml")
    assert load({}, {"OFFSETLAKE_CONFIG": named}).lake == Folder(Path("a"))
    assert load({"config": other}, {"OFFSETLAKE_CONFIG": named}).lake == Folder(Path("b"))


def test_empty_variable_is_ignored(tmp_path: Path) -> None:
    file = write(tmp_path, 'lake = "of-file"')
    assert load({"config": file}, {"OFFSETLAKE_LAKE": ""}).lake == Folder(Path("of-file"))


def test_later_source_replaces_the_kind_of_log(tmp_path: Path) -> None:
    file = write(tmp_path, 'bootstrap = "broker:9092"')
    assert load({"config": file}, {}).address().connection is not None
    assert load({"config": file, "log": "data"}, {}).address().folder == Path("data")
    live = load({"config": file, "bootstrap": "other:1"}, {"OFFSETLAKE_LOG": "data"}).address()
    assert live.folder is None
    assert live.connection is not None
    assert live.connection.bootstrap == "other:1"


def test_lake_in_an_object_store_is_a_setting() -> None:
    assert str(load({"lake": "s3://bucket/lakes/kafka/"}, {}).lake) == "s3://bucket/lakes/kafka"


@pytest.mark.parametrize("lake", ["hdfs://host/lake", "file:/lakes/prod", "http://host/lake"])
def test_uri_of_an_unknown_scheme_is_refused(lake: str) -> None:
    with pytest.raises(BadRequest, match="schemes are s3, gs, abfss"):
        load({"lake": lake}, {})
    with pytest.raises(BadRequest, match="schemes are s3, gs, abfss"):
        open_snapshot(Path(lake), "log")


@pytest.mark.parametrize("options", [{}, {"log": "data", "bootstrap": "broker:9092"}])
def test_no_log_and_two_logs_are_errors(options: dict[str, str | None]) -> None:
    with pytest.raises(BadRequest, match="Specify one log"):
        load(options, {}).address()


@pytest.mark.parametrize("key", ['"security.protocol"', "security.protocol"])
def test_client_properties_are_merged_from_every_source(tmp_path: Path, key: str) -> None:
    toml = write(tmp_path, f'[kafka]\n{key} = "SASL_PLAINTEXT"\n"request.timeout.ms" = 7000')
    properties = write(
        tmp_path,
        "# how to be let in\n\n! by Kafka's names\nbootstrap.servers = broker:9092\nsasl.mechanism=PLAIN\n"
        "sasl.username=me\nsasl.password=a=b#c",
        "client.properties",
    )
    config = load({"config": toml, "kafka_config": properties}, {"OFFSETLAKE_KAFKA_SASL_USERNAME": "not me"})
    connection = config.address().connection
    assert connection is not None
    assert connection == KafkaConnection.from_settings(
        {
            "bootstrap.servers": "broker:9092",
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "PLAIN",
            "sasl.username": "me",
            "sasl.password": "a=b#c",
            "request.timeout.ms": "7000",
        }
    )


def test_bootstrap_option_overrides_the_properties_file(tmp_path: Path) -> None:
    file = write(tmp_path, "bootstrap.servers=a:1")
    assert load({"kafka_config": file, "bootstrap": "b:2"}, {}).bootstrap == "b:2"
    assert load({"kafka_config": file, "log": "data"}, {}).address().folder == Path("data")


def test_secrets_are_neither_in_repr_nor_in_errors(tmp_path: Path) -> None:
    config = load({}, {"OFFSETLAKE_KAFKA_SASL_PASSWORD": "hush"})
    assert config.kafka == {"sasl.password": "hush"}
    assert "hush" not in repr(config)
    with pytest.raises(BadRequest) as error:
        load({"kafka_config": write(tmp_path, "sasl.username=me\nhush")}, {})
    assert "line 2" in str(error.value)
    assert "hush" not in str(error.value)


@pytest.mark.parametrize(
    ("toml", "says"),
    [
        (
            'laek = "x"',
            "toml: unknown laek. Known: lake, log, bootstrap, format, kafka_config, kafka, retention, maintain, s",
        ),
        ("[kafka]\nsasl.pasword = 'x'", r"table kafka: unknown sasl.pasword. Known: bootstrap.servers, security"),
        ("lake = 3", "lake must be a string"),
        ("kafka = 3", "kafka must be a table"),
        ("serve = 3", "serve must be a table"),
        (
            "[serve]\nport = 3",
            "table serve: unknown port. Known: kafka, http, console, share, topics, cluster, node_id",
        ),
        ("[kafka]\nsecurity.protocol = [1]", "security.protocol must be a string, a number or a boolean"),
        ("lake = ", "is not valid TOML"),
        ('format = "xml"', "Invalid format 'xml': expected one of table, json, csv"),
    ],
)
def test_invalid_settings_file_is_an_error(tmp_path: Path, toml: str, says: str) -> None:
    with pytest.raises(BadRequest, match=says):
        load({"config": write(tmp_path, toml)}, {})


def test_unknown_variables_and_properties_are_errors(tmp_path: Path) -> None:
    with pytest.raises(BadRequest, match=r"The environment: unknown OFFSETLAKE_LAEK. Known: OFFSETLAKE_LAKE, "):
        load({}, {"OFFSETLAKE_LAEK": "x"})
    with pytest.raises(BadRequest, match=r"settings.toml: unknown acks. Known: bootstrap.servers, "):
        load({"kafka_config": write(tmp_path, "acks=1")}, {})
    with pytest.raises(BadRequest, match="Cannot read nowhere"):
        load({"config": "nowhere"}, {})


@pytest.mark.parametrize(
    ("text", "hours"),
    [
        ('vacuum_retention = "36h"', (36, 24)),
        ('state_vacuum_retention = "3d"', (168, 72)),
        ('vacuum_retention = "2h"\nstate_vacuum_retention = "1h"', (2, 1)),
    ],
)
def test_vacuum_retentions_are_read_in_ms(tmp_path: Path, text: str, hours: tuple[int, int]) -> None:
    file = write(tmp_path, f"[maintain]\n{text}")
    assert load({"config": file}, {}).vacuum_retention == tuple(number * 3_600_000 for number in hours)


def test_history_is_kept_forever_unless_configured(tmp_path: Path) -> None:
    assert load({}, {}).keep == Keep(None, None)
    file = write(tmp_path, '[history]\nkeep = "400d"\n[audit_events]\nkeep = "90d"')
    assert load({"config": file}, {}).keep == Keep(400 * 86_400_000, 90 * 86_400_000)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("history = 7", r'table history: expected a table with a key such as keep = "400d"'),
        ('[history]\nkeep = "a year"', "table history: keep: Invalid duration 'a year'"),
        ('[audit_events]\nkept = "90d"', "table audit_events: expected a table"),
        ('[audit_events]\nkeep = "90d"\nfor = 1', "table audit_events: unknown for. Known: keep"),
    ],
)
def test_invalid_limit_of_history_is_an_error(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(BadRequest, match=says):
        load({"config": write(tmp_path, text)}, {})


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("maintain = 7", "table maintain: expected a table .maintain. with a key"),
        ("[maintain]\nvacuum_retention = 7", "expected a table"),
        ('[maintain]\nvacuum_retention = "7 days"', "table maintain: vacuum_retention: Invalid duration '7 days'"),
        ('[maintain]\nvacuum_retention = "8d"', "table maintain: vacuum_retention must be at most 7d"),
        ('[maintain]\nstate_vacuum_retention = "8d"', "table maintain: state_vacuum_retention must be at most 7d"),
        (
            '[maintain]\nvacuum_retention = "1d"\nkeep = "2d"',
            "table maintain: unknown keep. Known: vacuum_retention, state_vacuum_retention",
        ),
    ],
)
def test_invalid_vacuum_retention_is_an_error(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(BadRequest, match=says):
        load({"config": write(tmp_path, text)}, {})


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (
            '[maintain]\nvacuum_retention = "0s"',
            "table maintain: vacuum_retention: Invalid duration 0s: nothing would be kept",
        ),
        ('[maintain]\nvacuum_retention = "30m"', "table maintain: vacuum_retention: Invalid duration 30m: m can be"),
        ('[history]\nkeep = "6m"', "table history: keep: Invalid duration 6m: m can be minutes or months. Write PT6M"),
        ('[history]\nkeep = "36m"', "table history: keep: Invalid duration 36m: m can be minutes or months"),
        ('[history]\nkeep = "0d"', "table history: keep: Invalid duration 0d: nothing would be kept"),
        ('[audit_events]\nkeep = "12m"', "table audit_events: keep: Invalid duration 12m"),
        ('[audit_events]\nkeep = "0s"', "table audit_events: keep: Invalid duration 0s"),
        ('[retention]\ndefault = "6m"', "line 2: default: Invalid duration 6m: m can be minutes or months"),
        ('[retention]\ndefault = "0s"', "line 2: default: Invalid duration 0s: nothing would be kept"),
        ('[retention]\nshare_idle = "3m"', "line 2: share_idle: Invalid duration 3m"),
        (f'{OVERRIDE}group = "a"\nretention = "0h"', "line 5: retention: Invalid duration 0h"),
    ],
)
def test_duration_that_cannot_be_meant_is_an_error(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(BadRequest, match=says):
        load({"config": write(tmp_path, text)}, {})


def test_spark_properties_have_their_full_names(tmp_path: Path) -> None:
    file = write(tmp_path, '[spark]\nmaster = "k8s://https://k:443"\nspark.task.cpus = 2\n"spark.x.y" = true')
    expected = {"spark.master": "k8s://https://k:443", "spark.task.cpus": "2", "spark.x.y": "true"}
    assert load({"config": file}, {}).spark == expected


def test_later_source_replaces_the_master_and_keeps_the_properties(tmp_path: Path) -> None:
    file = write(tmp_path, '[spark]\nmaster = "yarn"\n"spark.executor.memory" = "4g"')
    environment = {"OFFSETLAKE_SPARK_REMOTE": "sc://connect:15002/;token=secret", "OFFSETLAKE_SPARK_MASTER": ""}
    settings = load({"config": file}, environment)
    assert settings.spark == {
        "spark.remote": "sc://connect:15002/;token=secret",
        "spark.executor.memory": "4g",
    }
    assert "secret" not in repr(settings)
    assert load({"config": file}, {"OFFSETLAKE_SPARK_MASTER": "local[2]"}).spark["spark.master"] == "local[2]"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('master = "spark-1:7077"', "master is invalid: expected local[4], spark://HOST:PORT, yarn or k8s://HOST:PORT"),
        ('master = "spark://spark-1"', "master is invalid"),
        ('remote = "http://h/;token=t0ken"', "remote is invalid: expected sc://HOST:PORT"),
        ('master = "yarn"\nremote = "sc://h"', "master and remote are mutually exclusive"),
        ('"spark.master" = "yarn"', "spark.master must be written as master"),
        ('executor.memory = "4g"', "unknown executor.memory. Known: master, remote, and the properties of Spark"),
        ('"spark.a=b" = "4g"', "unknown spark.a=b"),
        ('"spark.executor.memory" = " "', "spark.executor.memory is empty"),
        ("spark.jars = []", "spark.jars must be a string, a number or a boolean"),
    ],
)
def test_invalid_spark_settings(tmp_path: Path, text: str, says: str) -> None:
    file = write(tmp_path, f"[spark]\n{text}")
    with pytest.raises(BadRequest) as failed:
        load({"config": file}, {})
    assert str(failed.value).startswith(file)
    assert says in str(failed.value)
    assert "t0ken" not in str(failed.value)


def test_invalid_spark_settings_of_the_environment_name_the_variables() -> None:
    with pytest.raises(BadRequest, match=r"OFFSETLAKE_SPARK_MASTER.*: master is invalid"):
        load({}, {"OFFSETLAKE_SPARK_MASTER": "yarn-cluster"})
