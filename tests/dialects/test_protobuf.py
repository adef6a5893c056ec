"""Messages from proto3 text, in a pool of their own."""

import sys

import pytest
from google.protobuf import descriptor_pb2, descriptor_pool

from midstream._dialects.kserve import messages
from midstream._dialects.protobuf import Package, extra, parse
from midstream._values.errors import UsageError, WireError

TEXT = """
// A comment.
enum Colour { RED = 0; BLUE = 3; }
message Inner { sint32 number = 1; }
message Outer {
  optional uint32 limit = 1;  // unset is not 0
  repeated string words = 2;
  map<string, Inner> inner_by_name = 3;
  oneof input { string text = 4; Inner ids = 5; }
  Colour colour = 6;
  optional float top_p = 7;
  bytes after = 8;
}
"""


@pytest.fixture(scope="module")
def package():
    return Package("some.engine", TEXT)


def test_every_kind_of_field(package):
    outer = package.Outer(words=["a", "b"], text="t", colour=3, after=b"\xff")
    outer.inner_by_name["x"].number = -1
    again = parse(package.Outer, outer.SerializeToString())
    assert list(again.words) == ["a", "b"]
    assert again.inner_by_name["x"].number == -1
    assert again.WhichOneof("input") == "text"
    assert (again.colour, again.after) == (3, b"\xff")
    assert not again.HasField("limit")
    assert not again.HasField("top_p")
    again.limit = 0
    again.ids.number = 2
    assert again.HasField("limit")
    assert again.WhichOneof("input") == "ids"


def test_bytes_on_the_wire(package):
    assert package.Inner(number=-1).SerializeToString() == b"\x08\x01"
    assert package.Outer(limit=0).SerializeToString() == b"\x08\x00"


def test_what_is_no_proto3():
    with pytest.raises(ValueError, match="no proto3"):
        Package("bad", "message A { string name; }")


def test_no_such_message(package):
    with pytest.raises(AttributeError, match="Nothing"):
        package.Nothing  # noqa: B018


def test_bytes_that_are_no_message(package):
    with pytest.raises(WireError, match=r"some\.engine\.Outer"):
        parse(package.Outer, b"\xff")


def test_protobuf_is_missing(monkeypatch):
    monkeypatch.setitem(sys.modules, "google.protobuf.descriptor_pb2", None)
    with pytest.raises(UsageError, match=r"pip install 'midstream\[grpc\]'"):
        Package("missing", TEXT)
    assert extra("math").pi


def test_a_library_for_the_same_server_may_live_beside():
    messages()
    file = descriptor_pb2.FileDescriptorProto(
        name="grpc_service.proto", package="inference", syntax="proto3"
    )
    file.message_type.add(name="ModelInferRequest")
    pool = descriptor_pool.Default()
    try:
        pool.FindFileByName(file.name)  # tritonclient itself, in a test before this one
    except KeyError:
        pool.AddSerializedFile(file.SerializeToString())
    theirs = pool.FindMessageTypeByName("inference.ModelInferRequest")
    assert theirs is not messages().ModelInferRequest.DESCRIPTOR
