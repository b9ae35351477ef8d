"""The built wheel, and an interpreter that has what the wheel depends on, but not this checkout."""

import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

ROOT = Path(__file__).parents[3]


def build_wheel(folder: Path) -> Path:
    """Build the wheel of this checkout, and return its path."""
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", folder, ROOT]
    subprocess.run(build, check=True, capture_output=True)
    (wheel,) = folder.glob("offsetlake-*.whl")
    return wheel


def make_environment(folder: Path) -> Path:
    """Create a virtual environment with all packages of this one, except for the link to the checkout.

    Returns its folder of packages.
    """
    venv.create(folder, symlinks=True, with_pip=False)
    packages = folder / "lib" / f"python{sysconfig.get_python_version()}" / "site-packages"
    folders = [path for path in sys.path if Path(path).name == "site-packages"]
    (packages / "dependencies.pth").write_text("".join(f"{path}\n" for path in folders))
    return packages
