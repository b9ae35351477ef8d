"""The properties of a Spark session that reads the tables and views of a lake, as `make spark-sql` has them."""

from pathlib import Path

_ROOT = Path(__file__).parents[2]
_LINES = (_ROOT / "conf" / "spark-sql.conf").read_text(encoding="utf-8").splitlines()

DELTA = {
    **dict(line.split() for line in _LINES if line.startswith("spark.")),
    "spark.driver.extraClassPath": f"{_ROOT}/.jars/spark/*",
}
"""The settings of `conf/spark-sql.conf`, and the folder of the jars of Delta Lake."""
