"""Chakra's bytes: against the protobuf specification's own examples and messages encoded by hand."""

import gzip
import struct

import pytest

from simulator.errors import ParameterError, WorkloadError
from workloads.traces.chakra import Attribute, CommType, Form, Node, NodeType, read_trace, write_trace
from workloads.traces.chakra.nodes import decode_node, encode_attribute, encode_node
from workloads.traces.chakra.wire import DamagedError, fields, read_varint, signed, unzigzag, varint, zigzag

GATHER = (
    b"\x07\x0a\x050.0.4"
    b"\x37\x08\x01\x12\x01g\x18\x07"
    b"\x52\x0e\x0a\x09is_cpu_op\xd8\x01\x00"
    b"\x52\x0d\x0a\x09comm_type\x48\x02"
    b"\x52\x0f\x0a\x09comm_size\x48\x80\x80\x40"
)
"""A node by hand: field 10 (tag 0x52) holds AttributeProto{1: name, 27: bool, 9: int64}; 2^20 is 80 80 40."""


@pytest.mark.parametrize(
    ("value", "data"),
    [
        (0, "00"),
        (1, "01"),
        (127, "7f"),
        (128, "8001"),
        (150, "9601"),
        (300, "ac02"),
        (2**64 - 1, "ff" * 9 + "01"),
    ],
)
def test_varints_are_those_of_the_specification(value, data):
    """protobuf.dev, Encoding: 150 is 96 01; 64 bits take ten bytes."""
    assert varint(value) == bytes.fromhex(data)
    assert read_varint(bytes.fromhex(data), 0, len(data) // 2) == (value, len(data) // 2)


def test_negative_numbers_are_two_s_complement_or_zigzag():
    """protobuf.dev, Encoding: int64 -2 takes ten bytes; sint maps 0, -1, 1, -2 to 0, 1, 2, 3."""
    assert varint(-2) == bytes.fromhex("fe" + "ff" * 8 + "01")
    assert signed(read_varint(varint(-2), 0, 10)[0]) == -2
    assert [zigzag(one) for one in (0, -1, 1, -2, 0x7FFFFFFF, -0x80000000)] == [
        0,
        1,
        2,
        3,
        0xFFFFFFFE,
        0xFFFFFFFF,
    ]
    assert all(unzigzag(zigzag(one)) == one for one in (-(2**63), 2**63 - 1, -77, 77))


def test_the_field_numbers_of_values_are_those_of_the_schema():
    """et_def.proto: double 3, float 5, int64 9, uint64 13, bool 27, string 29, lists one more."""
    assert encode_attribute("a", Attribute(Form.DOUBLE, 1.0)) == b"\x0a\x01a\x19" + struct.pack("<d", 1.0)
    assert encode_attribute("a", Attribute(Form.FLOAT, 1.0)) == b"\x0a\x01a\x2d" + struct.pack("<f", 1.0)
    assert encode_attribute("a", Attribute(Form.INT64, 150)) == b"\x0a\x01a\x48\x96\x01"
    assert encode_attribute("a", Attribute(Form.UINT64, 1)) == b"\x0a\x01a\x68\x01"
    assert encode_attribute("a", Attribute(Form.BOOL, value=False)) == b"\x0a\x01a\xd8\x01\x00"
    assert encode_attribute("a", Attribute(Form.STRING, "x")) == b"\x0a\x01a\xea\x01\x01x"
    assert encode_attribute("a", Attribute(Form.INT32, (3, 270))) == b"\x0a\x01a\x42\x05\x0a\x03\x03\x8e\x02"
    assert encode_attribute("a", Attribute(Form.STRING, ("x",))) == b"\x0a\x01a\xf2\x01\x03\x0a\x01x"


def test_a_file_by_hand_is_read_and_written_byte_for_byte(tmp_path):
    assert GATHER[8] == len(GATHER) - 9
    path, again = tmp_path / "g.0.et", tmp_path / "h.0.et"
    path.write_bytes(GATHER)
    (node,) = read_trace(path)
    assert (node.id, node.name, node.type) == (1, "g", NodeType.COMM_COLL)
    assert node.whole("comm_type") == CommType.ALL_GATHER
    assert node.whole("comm_size") == 2**20
    write_trace(again, [node])
    assert again.read_bytes() == GATHER


def test_every_field_of_a_node_comes_back():
    every = {form.name: Attribute(form, VALUES[form]) for form in Form}
    lists = {f"{form.name}s": Attribute(form, (VALUES[form], VALUES[form])) for form in Form}
    node = Node(
        id=2**63,
        name="ä",
        type=NodeType.COMP,
        ctrl_deps=(1, 300),
        data_deps=(0, 2**40),
        start_us=5,
        duration_us=7,
        inputs=("[1]", "", "x"),
        outputs=("", "[2]", ""),
        attributes={**every, **lists, "none": Attribute(Form.INT32, ())},
    )
    data = encode_node(node)
    assert decode_node(data, 0, len(data)) == node


VALUES = {
    **{form: 3 for form in Form},
    Form.DOUBLE: 0.1,
    Form.FLOAT: 0.5,
    Form.INT32: -3,
    Form.INT64: -(2**63),
    Form.SINT32: -4,
    Form.SINT64: 2**62,
    Form.SFIXED32: -5,
    Form.SFIXED64: -6,
    Form.UINT64: 2**64 - 1,
    Form.BOOL: True,
    Form.STRING: "",
    Form.BYTES: b"\xff",
}


def test_unpacked_lists_and_unknown_fields_are_read_as_readers_must():
    """protobuf.dev, Encoding: lists may come unpacked, and unknown fields are passed over."""
    data = (
        b"\x08\x01"
        + b"\x28\x07\x28\x08"
        + b"\x7a\x02hi"
        + b"\x18\x04"
        + b"\xa1\x06"
        + bytes(8)
        + b"\xa5\x06"
        + bytes(4)
    )
    node = decode_node(data, 0, len(data))
    assert (node.data_deps, node.type) == ((7, 8), NodeType.COMP)


@pytest.mark.parametrize("count", [1, 3])
def test_gzip_and_files_longer_than_a_chunk_read_the_same(tmp_path, count, monkeypatch):
    monkeypatch.setattr("workloads.traces.chakra.files.CHUNK_BYTES", 64 * count)
    nodes = [Node(id=one, name="n" * (one % 90), type=NodeType.COMP, duration_us=one) for one in range(200)]
    plain, zipped = tmp_path / "a.0.et", tmp_path / "a.0.et.gz"
    write_trace(plain, nodes)
    write_trace(zipped, nodes)
    assert list(read_trace(plain)) == list(read_trace(zipped)) == nodes
    assert gzip.decompress(zipped.read_bytes()) == plain.read_bytes()


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        (b"", "byte 0: not a Chakra trace: the file is empty"),
        (GATHER[:-1], "byte 9: not a Chakra trace: a message of 55 bytes begins, and the file ends after 54"),
        (GATHER + b"\x80", "byte 64: not a Chakra trace: no length of a message: a varint is cut off"),
        (GATHER[:14] + b"\x18\x63" + GATHER[16:], "byte 9: not a Chakra trace: there is no node type 99"),
        (b"\x02\x08\x01" + b"\x02\x0b\x01", "byte 4: not a Chakra trace: field 1 has wire type 3"),
        (b"\x00" + b"\x04\x12\x02\xff\xfe", "byte 4: not a Chakra trace: a text is not UTF-8"),
        (b"\x00" + b"\xff" * 11, "a varint is longer than ten bytes"),
        (b"\xff\xff\xff\xff\x7f", "bytes begins"),
        (b"\x1f\x8b\x08\x00damaged", "gzip data are damaged"),
        (gzip.compress(GATHER, mtime=0)[:-12], "gzip data are damaged"),
    ],
)
def test_damage_is_one_sentence_with_the_byte(tmp_path, data, sentence):
    path = tmp_path / "bad.0.et"
    path.write_bytes(data)
    with pytest.raises(WorkloadError) as caught:
        list(read_trace(path))
    assert "bad.0.et" in str(caught.value)
    assert sentence in str(caught.value)
    assert "\n" not in str(caught.value)


def test_any_byte_may_be_wrong_without_a_traceback(tmp_path):
    """Every single byte replaced by 0xff, and every shorter file, is read or refused in a sentence."""
    path = tmp_path / "x.0.et"
    damaged = [GATHER[:at] + b"\xff" + GATHER[at + 1 :] for at in range(len(GATHER))]
    refused = []
    for data in (*damaged, *(GATHER[:at] for at in range(len(GATHER)))):
        path.write_bytes(data)
        try:
            list(read_trace(path))
        except WorkloadError as error:
            refused.append(str(error))
    assert len(refused) > len(GATHER)
    assert all("x.0.et: byte" in sentence for sentence in refused)


def test_a_missing_file_and_a_directory_are_named(tmp_path):
    for path in (tmp_path / "none.0.et", tmp_path):
        with pytest.raises(ParameterError, match=path.name):
            list(read_trace(path))
    with pytest.raises(ParameterError, match="cannot be written"):
        write_trace(tmp_path / "no" / "x.0.et", [])


def test_a_field_may_not_reach_beyond_its_message():
    with pytest.raises(DamagedError, match="field 2 has 9 bytes, and its message ends after 1"):
        list(fields(b"\x12\x09a", 0, 3))
