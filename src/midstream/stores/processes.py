"""Who holds a lease on this machine, and whether that process still lives.

A process is named by machine, boot, namespace, number and when it began: a number alone
is soon used again. Time is counted since the boot, suspends included, so that neither a
sleeping machine nor a step of the wall clock makes a lease longer or shorter; what
another machine wrote (a shared folder) can only be compared by the wall clock.
"""

from __future__ import annotations

import os
import platform
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_WORDS = 5  # of a mark


def now() -> float:
    """Seconds since the boot, suspends included."""
    if hasattr(time, "CLOCK_BOOTTIME"):
        return time.clock_gettime(time.CLOCK_BOOTTIME)
    return time.monotonic()


def wall() -> float:
    """Seconds since 1970, as far as the machine knows."""
    return time.time()


def mark(pid: int | None = None) -> str:
    """The name of this process."""
    number = os.getpid() if pid is None else pid
    words = platform.node() or "?", _boot(), _namespace(), number, _began(number)
    return " ".join(str(word).replace(" ", "_") for word in words)


@dataclass(frozen=True, slots=True)
class Hold:
    """How long a holder's leases hold.

    Attributes:
        until: In the time of `now`, on its machine.
        wall_until: In the time of `wall`.
        process: The `mark` of the process that holds them.
    """

    until: Any
    wall_until: Any
    process: Any

    @classmethod
    def of(cls, seconds: float, process: str) -> Hold:
        """From now on."""
        return cls(now() + seconds, wall() + seconds, process)

    def living(self) -> bool:
        """Whether it holds; one that nobody can have written does not."""
        words = self.process.split(" ") if isinstance(self.process, str) else []
        if len(words) != _WORDS:
            return False
        node, boot, namespace, number, began = words
        if boot != _boot():
            foreign = node != (platform.node() or "?").replace(" ", "_")
            return foreign and _later(self.wall_until, wall())
        if not _later(self.until, now()):
            return False
        if namespace != _namespace() or not number.isdecimal():
            return True
        return not _dead(int(number), began)


def _later(until: Any, than: float) -> bool:
    return isinstance(until, int | float) and until > than


def _dead(number: int, began: str) -> bool:
    if sys.platform == "win32":
        return False  # there is no signal 0
    try:
        os.kill(number, 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        pass
    except OverflowError:
        return True
    return began != _began(number)


def _began(pid: int) -> str:
    """The process's start in clock ticks, as Linux tells it; ``?`` elsewhere."""
    words = _read(f"/proc/{pid}/stat").rpartition(")")[2].split()
    return words[19] if len(words) > 19 else "?"  # noqa: PLR2004 - see proc(5)


def _boot() -> str:
    return _read("/proc/sys/kernel/random/boot_id") or "?"


def _namespace() -> str:
    """In which numbers of processes count: containers have their own."""
    try:
        return str(Path("/proc/self/ns/pid").readlink())
    except OSError:
        return "?"


def _read(path: str) -> str:
    try:
        return Path(path).read_text().strip()
    except OSError:
        return ""
