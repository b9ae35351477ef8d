"""Sources of settings, their precedence, and errors of invalid settings."""

from pathlib import Path

import pytest

from offsetlake import open_snapshot
from offsetlake.cli.config import Config, load
from offsetlake.errors import BadRequest
from offsetlake.log.cluster.connection import KafkaConnection
from offsetlake.rules.policy import Override, RetentionPolicy

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
        Path("lake"),
        None,
        None,
        "table",
        kafka={},
        retention=RetentionPolicy(week),
        vacuum_retention_ms=week,
        serve=serve,
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


def test_overrides_without_default_keep_the_built_in_default(tmp_path: Path) -> None:
    file = write(tmp_path, '[[retention.override]]\ngroup = "[]a]"\nretention = "1d"')
    assert load({"config": file}, {}).retention == RetentionPolicy(7 * 86_400_000, (Override("[]a]", "*", 86_400_000),))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('\n[retention]\ndefault = "7d"\nweeks = 1', "line 4: weeks: unknown key. Known: default, override"),
        ("retention = 7", "line 1: retention: expected a table [retention] with default and [[retention.override]]"),
        ('retention = "7d"', "line 1: retention: expected a table [retention]"),
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
    assert load({"config": file}, {}).lake == Path("of-file")
    assert load({"config": file}, environment).lake == Path("of-environment")
    assert load({"config": file, "lake": "of-option"}, environment).lake == Path("of-option")
    assert load({"config": file, "lake": None}, environment).format == "csv"


def test_environment_selects_the_settings_file(tmp_path: Path) -> None:
    named, other = write(tmp_path, 'lake = "a"'), write(tmp_path, 'lake = "b"', "other.toml")
    assert load({}, {"OFFSETLAKE_CONFIG": named}).lake == Path("a")
    assert load({"config": other}, {"OFFSETLAKE_CONFIG": named}).lake == Path("b")


def test_empty_variable_is_ignored(tmp_path: Path) -> None:
    file = write(tmp_path, 'lake = "of-file"')
    assert load({"config": file}, {"OFFSETLAKE_LAKE": ""}).lake == Path("of-file")


def test_later_source_replaces_the_kind_of_log(tmp_path: Path) -> None:
    file = write(tmp_path, 'bootstrap = "broker:9092"')
    assert load({"config": file}, {}).address().connection is not None
    assert load({"config": file, "log": "data"}, {}).address().folder == Path("data")
    live = load({"config": file, "bootstrap": "other:1"}, {"OFFSETLAKE_LOG": "data"}).address()
    assert live.folder is None
    assert live.connection is not None
    assert live.connection.bootstrap == "other:1"


@pytest.mark.parametrize("lake", ["s3://bucket/lake", "abfss://container@account/lake", "file:/lakes/prod"])
def test_uri_of_a_lake_is_refused(lake: str) -> None:
    with pytest.raises(BadRequest, match="a lake is a folder; object stores are not supported"):
        load({"lake": lake}, {})
    with pytest.raises(BadRequest, match="a lake is a folder"):
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
            "table serve: unknown port. Known: kafka, http, topics, flush, log_partitions, log_format",
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


def test_vacuum_retention_is_read_in_ms(tmp_path: Path) -> None:
    file = write(tmp_path, '[maintain]\nvacuum_retention = "36h"')
    assert load({"config": file}, {}).vacuum_retention_ms == 36 * 3_600_000


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("maintain = 7", r"table maintain: expected a table \[maintain\] with a key"),
        ("[maintain]\nvacuum_retention = 7", "expected a table"),
        ('[maintain]\nvacuum_retention = "7 days"', "table maintain: vacuum_retention: Invalid duration '7 days'"),
        ('[maintain]\nvacuum_retention = "8d"', "table maintain: vacuum_retention must be at most 7d"),
        (
            '[maintain]\nvacuum_retention = "1d"\nkeep = "2d"',
            "table maintain: unknown keep. Known: vacuum_retention",
        ),
    ],
)
def test_invalid_vacuum_retention_is_an_error(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(BadRequest, match=says):
        load({"config": write(tmp_path, text)}, {})
