"""Protobuf messages from their text, built at run time in a pool of their own.

Generated code would register its names in the one pool of the process, where a client
library for the same server (tritonclient, smg-grpc-proto) has registered them already,
and it would pin a protobuf version. So a dialect keeps the few messages it needs as
proto3 text, and they are built when the first stream needs them, in a private pool.

The text is the part of proto3 that message definitions of servers use: scalar,
message and enum fields, ``repeated``, ``optional``, ``oneof``, ``map<>``, and messages
and enums at the top level.
"""

from __future__ import annotations

import re
from importlib import import_module
from typing import Any

from midstream._values.errors import UsageError, WireError

_TOKEN = re.compile(
    r"""\s* (?:
      (?P<open> message | enum | oneof ) \s+ (?P<name> \w+ ) \s* \{
    | map \s* < \s* (?P<key> \w+ ) \s* , \s* (?P<value> \w+ ) \s* >
      \s+ (?P<mapped> \w+ ) \s* = \s* (?P<at> \d+ ) \s* ;
    | (?: (?P<label> repeated | optional ) \s+ )? (?P<type> \w+ )
      \s+ (?P<field> \w+ ) \s* = \s* (?P<number> \d+ ) \s* ;
    | (?P<constant> \w+ ) \s* = \s* (?P<of> \d+ ) \s* ;
    | (?P<close> \} )
    ) \s*""",
    re.VERBOSE,
)
_SCALARS = frozenset(
    [
        "double",
        "float",
        "int64",
        "uint64",
        "int32",
        "fixed64",
        "fixed32",
        "bool",
        "string",
        "bytes",
        "uint32",
        "sfixed32",
        "sfixed64",
        "sint32",
        "sint64",
    ]
)


def extra(module: str) -> Any:
    """Import a module that comes with the ``grpc`` extra.

    Raises:
        UsageError: It is not installed.
    """
    try:
        return import_module(module)
    except ImportError as error:
        raise UsageError(
            f"gRPC needs {module}: pip install 'midstream[grpc]'"
        ) from error


class Package:
    """The messages of one package, as attributes.

    Args:
        name: The package, as on the wire.
        text: Its messages and enums in proto3.

    Raises:
        UsageError: protobuf is not installed.
        ValueError: The text is not understood.
    """

    def __init__(self, name: str, text: str) -> None:
        descriptors = extra("google.protobuf.descriptor_pb2")
        factory = extra("google.protobuf.message_factory")
        pool = extra("google.protobuf.descriptor_pool").DescriptorPool()
        file = descriptors.FileDescriptorProto(
            name=f"midstream/{name}.proto", package=name, syntax="proto3"
        )
        _Builder(file, text).build()
        pool.Add(file)
        for message in file.message_type:
            descriptor = pool.FindMessageTypeByName(f"{name}.{message.name}")
            setattr(self, message.name, factory.GetMessageClass(descriptor))

    def __getattr__(self, name: str) -> Any:
        """Only for type checkers: messages are set when the package is built."""
        raise AttributeError(name)


def parse(message: Any, data: bytes) -> Any:
    """Read a serialized message.

    Args:
        message: Its class.
        data: The bytes.

    Raises:
        WireError: They are no such message.
    """
    try:
        return message.FromString(data)
    except extra("google.protobuf.message").DecodeError as error:
        raise WireError(f"no {message.DESCRIPTOR.full_name}: {error}") from error


class _Builder:
    """Fills a file descriptor from proto3 text."""

    def __init__(self, file: Any, text: str) -> None:
        self._file = file
        self._text = re.sub(r"//.*", "", text).rstrip()
        self._enums = set(re.findall(r"\benum\s+(\w+)", self._text))
        self._message: Any = None
        self._enum: Any = None
        self._oneof: int | None = None

    def build(self) -> None:
        """Read the text once, from its begin to its end."""
        at = 0
        while at < len(self._text):
            token = _TOKEN.match(self._text, at)
            if token is None:
                raise ValueError(f"no proto3: {self._text[at : at + 40]!r}")
            at = token.end()
            if token["open"]:
                self._opened(token["open"], token["name"])
            elif token["close"]:
                self._oneof = None
            elif token["constant"]:
                self._enum.value.add(name=token["constant"], number=int(token["of"]))
            elif token["mapped"]:
                self._map(self._message, token)
            else:
                self._plain(token)
        self._presence()

    def _opened(self, kind: str, name: str) -> None:
        if kind == "message":
            self._message = self._file.message_type.add(name=name)
        elif kind == "enum":
            self._enum = self._file.enum_type.add(name=name)
        else:
            self._oneof = len(self._message.oneof_decl)
            self._message.oneof_decl.add(name=name)

    def _plain(self, token: re.Match[str]) -> None:
        field = self._field(
            self._message, token["field"], token["number"], token["type"]
        )
        if token["label"] == "repeated":
            field.label = field.LABEL_REPEATED
        field.proto3_optional = token["label"] == "optional"
        if self._oneof is not None:
            field.oneof_index = self._oneof

    def _field(self, message: Any, name: str, number: str, kind: str) -> Any:
        field = message.field.add(name=name, number=int(number))
        field.label = field.LABEL_OPTIONAL
        if kind in _SCALARS:
            field.type = getattr(field, f"TYPE_{kind.upper()}")
        else:
            field.type = field.TYPE_ENUM if kind in self._enums else field.TYPE_MESSAGE
            field.type_name = f".{self._file.package}.{kind}"
        return field

    def _map(self, message: Any, token: re.Match[str]) -> None:
        """A map is a repeated nested message of a fixed name, key 1 and value 2."""
        words = token["mapped"].split("_")
        entry = message.nested_type.add(name="".join(map(str.title, words)) + "Entry")
        entry.options.map_entry = True
        self._field(entry, "key", "1", token["key"])
        self._field(entry, "value", "2", token["value"])
        field = self._field(message, token["mapped"], token["at"], entry.name)
        field.type_name = f".{self._file.package}.{message.name}.{entry.name}"
        field.label = field.LABEL_REPEATED

    def _presence(self) -> None:
        """Give ``optional`` fields their one-member oneofs, after all real ones."""
        for message in self._file.message_type:
            for field in message.field:
                if field.proto3_optional:
                    field.oneof_index = len(message.oneof_decl)
                    message.oneof_decl.add(name=f"_{field.name}")
