"""Carries a body out over HTTP/1.1: headers, compression, chunks, and the end.

How the bytes travel is `Chunking`'s business. What is not sent yet is flushed before
anything is waited for or torn.
"""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, assert_never

from midstream.testing._fake.faults import Chunking, Cut, Gzip, pick
from midstream.testing._fake.play import End, Open, Send, Tear, Wait
from midstream.testing._fake.wire import head

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from midstream.testing._fake.faults import Fault
    from midstream.testing._fake.play import Action
    from midstream.testing._fake.wire import Line

_GZIP = 31  # window bits for a gzip header


class Body:
    """One streamed response.

    Args:
        line: The connection.
        headers: The response's headers.
        faults: How it travels, among other things.
        chunked: Whether the client knows chunks.
    """

    def __init__(
        self,
        line: Line,
        headers: Mapping[str, str],
        faults: Sequence[Fault],
        *,
        chunked: bool = True,
    ) -> None:
        self._line = line
        self._headers = dict(headers)
        self._how = (pick(faults, Chunking) or Chunking()).how
        if not chunked:
            self._how = "close"
        gzip = pick(faults, Gzip)
        self._trailer = gzip is None or gzip.trailer
        self._zip = zlib.compressobj(wbits=_GZIP) if gzip is not None else None
        if gzip is not None and gzip.announced:
            self._headers["Content-Encoding"] = "gzip"
        self._waiting: list[bytes] = []

    def carry_out(
        self,
        actions: Iterable[Action],
        refuse: Callable[[float], None],
        cut: Cut | None,
    ) -> None:
        """Do it all.

        Args:
            actions: What to do.
            refuse: Refuses new connections for some seconds.
            cut: The cut among them.

        Raises:
            HungUp: The client left.
            Closing: The server closes.
        """
        for action in actions:
            if cut is not None and cut.refuse_for and isinstance(action, Tear | End):
                refuse(cut.refuse_for)
            self._do(action)

    def _do(self, action: Action) -> None:
        match action:
            case Open():
                self._open()
            case Send():
                self._send(action.data)
            case Wait():
                if action.seconds != 0:
                    self._flush()
                self._line.wait(action.seconds)
            case End():
                self._send(action.record[: action.size])
                self._end()
            case Tear():
                self._tear(action)
            case _:
                assert_never(action)

    def _open(self) -> None:
        if self._how == "close":
            self._headers["Connection"] = "close"
        else:
            self._headers["Transfer-Encoding"] = "chunked"
        self._line.send(head(200, self._headers))

    def _send(self, data: bytes) -> None:
        if not data:
            return
        if self._zip is not None:
            data = self._zip.compress(data) + self._zip.flush(zlib.Z_SYNC_FLUSH)
        size = self._how if isinstance(self._how, int) else len(data)
        for start in range(0, len(data), size):
            self._wire(self._chunk(data[start : start + size]))

    def _tear(self, tear: Tear) -> None:
        if tear.how == "mid_chunk":
            self._send_part(tear.record, tear.size)
        else:
            self._send(tear.record[: tear.size])
        self._flush()
        if tear.how == "rst":
            self._line.reset()
        else:
            self._line.finish()

    def _send_part(self, data: bytes, size: int) -> None:
        """The first bytes of a chunk that promises all of `data`."""
        self._flush()
        if self._zip is not None:
            data = self._zip.compress(data) + self._zip.flush(zlib.Z_SYNC_FLUSH)
            size = len(data) // 2
        part = data[:size]
        self._line.send(part if self._how == "close" else b"%x\r\n" % len(data) + part)

    def _end(self) -> None:
        rest = self._zip.flush() if self._zip is not None and self._trailer else b""
        if rest:
            self._wire(self._chunk(rest))
        if self._how != "close":
            self._wire(b"0\r\n\r\n")
        self._flush()
        if self._how == "close":
            self._line.finish()

    def _flush(self) -> None:
        data = b"".join(self._waiting)
        self._waiting.clear()
        if data:
            self._line.send(data)

    def _chunk(self, data: bytes) -> bytes:
        return data if self._how == "close" else b"%x\r\n%s\r\n" % (len(data), data)

    def _wire(self, data: bytes) -> None:
        if self._how == "whole":
            self._waiting.append(data)
        elif self._how == "bytes":
            for byte in data:
                self._line.send(bytes([byte]))
        else:
            self._line.send(data)
