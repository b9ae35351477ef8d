"""The built wheel, and an interpreter that has what the wheel depends on, but not this checkout."""

import os
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

ROOT = Path(__file__).parents[3]
LOCK = ROOT / "conf" / "requirements" / "runtime.txt"
STORED = "--config-setting=--build-option=--compression=stored"  # as the Makefile: the cache has this wheel of PySpark


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


def install(folder: Path, requirement: str) -> None:
    """Create a virtual environment with a requirement and what it requires only, at the locked versions.

    The packages are those that `make setup` has left in the cache of uv; without it, they are downloaded.
    """
    uv = Path(sys.executable).with_name("uv")
    subprocess.run([uv, "venv", "-q", "--python", sys.executable, folder], check=True)
    command = [uv, "pip", "install", "-q", "--python", folder / "bin" / "python", "-c", LOCK, STORED, requirement]
    if subprocess.run([*command, "--offline"], capture_output=True, check=False).returncode:
        pip = [sys.executable, "-m", "pip", "config", "get", "global.index-url"]
        index = subprocess.run(pip, capture_output=True, text=True, check=False).stdout.strip()
        subprocess.run(command, env={**({"UV_DEFAULT_INDEX": index} if index else {}), **os.environ}, check=True)
