"""Spark and lakes in object stores: it reads them over S3A, and never writes to a table."""

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

from offsetlake.lake.lake import Lake
from support.e2e.in_process import InProcess
from support.e2e.lakes import cycle
from support.object_store.server import S3Server

ROOT = Path(__file__).parents[3]
LIBRARY = ROOT / "lib" / "offsetlake"
WRITERS = {"writeTo", "writeStream", "saveAsTable", "insertInto"}


@pytest.mark.parametrize(
    "module",
    sorted(path for path in LIBRARY.rglob("*.py") if "pyspark" in path.read_text(encoding="utf-8")),
    ids=lambda path: str(path.relative_to(LIBRARY)),
)
def test_no_module_that_uses_spark_writes_with_it(module: Path) -> None:
    tree = ast.parse(module.read_text(encoding="utf-8"))
    attributes = [node for node in ast.walk(tree) if isinstance(node, ast.Attribute)]
    assert not {node.attr for node in attributes} & WRITERS
    writers = [node.value for node in attributes if isinstance(node.value, ast.Attribute)]
    assert not [node for node in writers if node.attr == "write"], "DataFrame.write.…"


@pytest.mark.long
def test_spark_sql_reads_tables_and_views_of_a_store(s3: S3Server, bucket: str, tmp_path: Path) -> None:
    lake = Lake.create(f"s3://{bucket}/lake")
    cycle(InProcess(), lake, ROOT / "tests" / "fixtures" / "broker-log")
    program = Path(sys.executable).parent
    statements = tmp_path / "lake.sql"
    with statements.open("w") as file:
        command = [program / "offsetlake", "views", "--lake", str(lake.location)]
        subprocess.run(command, stdout=file, check=True)
    s3a = {"endpoint": s3.endpoint, "endpoint.region": "us-east-1", "path.style.access": "true"}
    settings = [word for name, value in s3a.items() for word in ("--conf", f"spark.hadoop.fs.s3a.{name}={value}")]
    question = "SELECT (SELECT count(*) FROM offsets), (SELECT count(*) FROM commit_outcomes)"
    environment = os.environ | {"PATH": f"{program}{os.pathsep}{os.environ['PATH']}"}
    answer = subprocess.run(
        [program / "spark-sql", "--driver-class-path", f"{ROOT}/.jars/spark/*", "--properties-file",
         ROOT / "conf" / "spark-sql.conf", *settings, "-i", statements, "-e", question],
        cwd=tmp_path, env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert answer.returncode == 0, answer.stderr
    counts = (lake.count("offsets"), lake.query("SELECT count(*) AS n FROM commit_outcomes")["n"][0].as_py())
    assert answer.stdout.split() == [str(count) for count in counts]
