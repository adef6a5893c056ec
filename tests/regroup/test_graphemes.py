"""One cluster a piece."""

from midstream._regroup import Graphemes


def test_each_cluster_goes_when_the_next_one_begins():
    by = Graphemes()
    assert by.feed("ab", 0.0) == ["a"]
    assert by.feed("", 9.0) == []
    assert by.feed("\u0301", 9.0) == []
    assert by.feed("👨\u200d", 9.0) == ["b\u0301"]
    assert by.feed("👩\u200d👧", 9.0) == []
    assert by.feed("。\r", 9.0) == ["👨\u200d👩\u200d👧", "。"]
    assert by.deadline is None
    assert by.feed("\n", 9.0) == ["\r\n"]
    assert by.flush() == []
    assert by.feed("🇯🇵🇺", 9.0) == ["🇯🇵"]
    assert by.flush() == ["🇺"]
