"""Chakra's bytes: against messages encoded by hand from the schema's field numbers."""

import gzip
import struct
import sys

import pytest

from experiments.__main__ import main
from experiments.cli import BAD_INPUT
from simulator.errors import HeliographError, ParameterError, WorkloadError
from workloads.traces import Attribute, CommType, Form, Node, NodeType, read_trace, write_trace
from workloads.traces.nodes import decode_node, encode_metadata, encode_node, schema

GATHER = (
    b"\x07\x0a\x050.0.4"
    b"\x37\x08\x01\x12\x01g\x18\x07"
    b"\x52\x0e\x0a\x09is_cpu_op\xd8\x01\x00"
    b"\x52\x0d\x0a\x09comm_type\x48\x02"
    b"\x52\x0f\x0a\x09comm_size\x48\x80\x80\x40"
)
"""A node by hand: field 10 (tag 0x52) holds AttributeProto{1: name, 27: bool, 9: int64}; 2^20 is 80 80 40."""


def test_the_field_numbers_of_values_are_those_of_the_schema():
    """et_def.proto: double 3, float 5, int64 9, uint64 13, bool 27, string 29, lists one more."""

    def encode_attribute(name, attribute):
        message = encode_metadata("", {name: attribute})
        assert message[:2] == bytes((0x12, len(message) - 2))
        return message[2:]

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
    assert decode_node(data) == node


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
    node = decode_node(data)
    assert (node.data_deps, node.type) == ((7, 8), NodeType.COMP)


def test_gzip_reads_the_same(tmp_path):
    """Names from 0 to 299 bytes, so that lengths take one byte or two."""
    nodes = [Node(id=one, name="n" * one, type=NodeType.COMP, duration_us=one) for one in range(300)]
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
        (GATHER + b"\x80", "byte 64: not a Chakra trace: no length of a message: it is cut off"),
        (GATHER[:14] + b"\x18\x63" + GATHER[16:], "byte 9: not a Chakra trace: there is no node type 99"),
        (
            b"\x02\x08\x01" + b"\x02\x0b\x01",
            "byte 4: not a Chakra trace: a message of 2 bytes is none of the schema's",
        ),
        (
            b"\x00" + b"\x04\x12\x02\xff\xfe",
            "byte 2: not a Chakra trace: a message of 4 bytes is none of the schema's",
        ),
        (b"\x00" + b"\xff" * 11, "no length of a message: it is longer than 10 bytes"),
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


@pytest.mark.parametrize("message", [b"\x12\x09a", b"\x08", b"\x28\xff"])
def test_a_field_may_not_reach_beyond_its_message(message):
    with pytest.raises(ValueError, match="none of the schema's"):
        decode_node(message)


@pytest.mark.slow
def test_where_protobuf_is_missing_one_sentence_says_what_to_install(tmp_path, capsys, monkeypatch):
    """What reads and writes traces says so; published traces are skipped with that reason."""
    path = tmp_path / "g.0.et"
    path.write_bytes(GATHER)
    monkeypatch.setitem(sys.modules, "google.protobuf", None)
    schema.cache_clear()
    try:
        for act in (lambda: list(read_trace(path)), lambda: write_trace(path, [])):
            with pytest.raises(HeliographError, match=r"pip install 'heliograph\[chakra\]'"):
                act()
        assert main(["network", "trace", str(tmp_path / "g")]) == BAD_INPUT
        assert capsys.readouterr().err.count("\n") == 1
        assert main(["validate", "network"]) == 0
        out = capsys.readouterr().out
        assert "heliograph[chakra]" in out
        assert "Steps as traces" not in out
    finally:
        schema.cache_clear()
