"""Put the real Triton Inference Server into .cache/triton, from package registries.

The wheel nvidia-pytriton holds a complete tritonserver with its Python backend; about
a third of it is needed, and none of the packages it depends on. The backend runs its
models in a process that is linked against Python 3.11 whatever Python runs this, so
that version's numpy is installed beside it, and Debian's libpython3.11 if there is no
such library yet.

    python tests/live/fetch_triton.py [--into FOLDER]

Everything is prepared in a folder beside the target, which is renamed at the end: what
is there is whole. Once it is there, this does nothing.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import shutil
import stat
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
TARGET = HERE.parent.parent / ".cache" / "triton"
SERVER = HERE / "requirements-triton.txt"
MODEL = HERE / "requirements-triton-model.txt"
PYTHON = "3.11"
LIBRARY = f"libpython{PYTHON}.so.1.0"
STUB = f"pytriton/tritonserver/python_backend_stubs/{PYTHON}/"
BACKEND = "pytriton/tritonserver/backends/python/"
WANTED = (
    "nvidia_pytriton.libs/",
    "pytriton/tritonserver/bin/",
    BACKEND,
    STUB,
)


def main() -> None:
    parser = argparse.ArgumentParser(description="Fetch the real Triton server.")
    parser.add_argument("--into", type=Path, default=TARGET, help="where to put it")
    target = parser.parse_args().into
    library()
    stamp = SERVER.read_text() + MODEL.read_text()
    if (target / "stamp").is_file() and (target / "stamp").read_text() == stamp:
        print(f"Triton is in {target}")  # noqa: T201 - a program's word
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent) as folder:
        made = Path(folder) / "triton"
        server(made, Path(folder))
        # The embedded Python is an isolated one: no PYTHONPATH, no venv. But the
        # backend's own folder is on its path.
        backend = made / BACKEND
        pip("install", "--target", str(backend), *foreign(), "-r", str(MODEL))
        (made / "stamp").write_text(stamp)
        shutil.rmtree(target, ignore_errors=True)
        made.rename(target)
    print(f"Triton is in {target}")  # noqa: T201 - as above


def server(made: Path, folder: Path) -> None:
    """Unpack what is needed of the wheel."""
    pip("download", "--dest", str(folder), *foreign(), "-r", str(SERVER))
    (wheel,) = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        for name in archive.namelist():
            if name.startswith(WANTED):
                archive.extract(name, made)
    backend = made / BACKEND
    # The backend looks for its stub beside itself.
    stub = made / STUB / "triton_python_backend_stub"
    stub = stub.rename(backend / stub.name)
    for program in (stub, made / "pytriton/tritonserver/bin/tritonserver"):
        program.chmod(program.stat().st_mode | stat.S_IXUSR)


def foreign() -> list[str]:
    """Options of pip for a Python that need not be the one that runs it."""
    return ["--no-deps", "--only-binary", ":all:", "--python-version", PYTHON]


def pip(*words: str) -> None:
    subprocess.run([sys.executable, "-m", "pip", *words], check=True)


def library() -> None:
    """Make sure that Python's shared library is there."""
    if loads():
        return
    package = f"libpython{PYTHON}"
    if os.geteuid() or not shutil.which("apt-get"):
        sys.exit(
            f"{LIBRARY} is missing: install it (Debian: apt-get install {package})"
        )
    environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    for words in (["update"], ["install", "--yes", "--no-install-recommends", package]):
        subprocess.run(["apt-get", "--quiet", *words], check=True, env=environment)
    if not loads():
        sys.exit(f"{LIBRARY} is still missing after installing {package}")


def loads() -> bool:
    try:
        ctypes.CDLL(LIBRARY)
    except OSError:
        return False
    return True


if __name__ == "__main__":
    main()
