"""Makes the archive of Spark's classes: `python -m offsetlake.pipeline.class_archive`.

A JVM that maps the archive neither parses nor verifies the classes in it (application class data sharing, JEP 350).
A JVM that cannot use it, because its version, its class path or a jar differs, ignores it. `make setup` runs this
module.
"""

import sys
import tempfile
from operator import neg
from pathlib import Path

from pyspark import SparkContext

from offsetlake.errors import BadRequest
from offsetlake.pipeline.parallel import distribute
from offsetlake.pipeline.spark import CLASS_ARCHIVE, JAVA_OPTIONS, MASTER, build_session


def make_class_archive() -> bool:
    """Run a small job, and write the classes that its JVM loaded to CLASS_ARCHIVE, which may exist.

    No other session may be open in this process.

    Returns:
        Whether the JVM wrote an archive: some cannot.

    Raises:
        BadRequest: Spark does not start.
        OSError: The folder of the archive cannot be written to.

    """
    CLASS_ARCHIVE.unlink(missing_ok=True)  # a JVM that maps an archive does not write one
    CLASS_ARCHIVE.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=CLASS_ARCHIVE.parent) as folder:
        archive = Path(folder, CLASS_ARCHIVE.name)
        options = f'-XX:TieredStopAtLevel=1 -XX:ArchiveClassesAtExit="{archive}"'
        spark = build_session("class archive", {MASTER: "local[2]", JAVA_OPTIONS: options})
        distribute(spark, neg, [1, 2])
        jvm = SparkContext._gateway.proc  # type: ignore[union-attr]  # noqa: SLF001 - pyspark has no public API for it
        spark.stop()
        jvm.stdin.close()  # the JVM exits, and writes the archive
        jvm.wait()
        if archive.exists():
            archive.replace(CLASS_ARCHIVE)
    return CLASS_ARCHIVE.exists()


def main() -> None:
    """Make the archive. Without one Spark only starts more slowly, so a failure is reported, but is not an error."""
    try:
        reason = "" if make_class_archive() else "This JVM does not support it."
    except (BadRequest, OSError) as error:
        reason = str(error)
    if reason:
        sys.stderr.write(f"Spark will start more slowly, without an archive of its classes: {reason}\n")


if __name__ == "__main__":
    main()
