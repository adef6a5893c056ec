"""gRPC messages."""

from midstream._frames.messages import MessageFramer


def test_one_piece_is_one_record_whatever_is_in_it(framed):
    pieces = [b"a\n\nb", b"", b"\x1f\x8b"]
    records = [(piece, "") for piece in pieces]
    assert framed(MessageFramer(), pieces) == (records, [])
