"""Attributes and helpers of the dialects; the operations' syntax and messages are in lit_tests."""

from __future__ import annotations

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st
from xdsl.dialects.builtin import MemRefType, StringAttr, TensorType, bf16, f16, f32, f64, i32
from xdsl.parser import Parser
from xdsl.utils.exceptions import VerifyException

from treadle.compiler.laws import standard_law, standard_laws
from treadle.compiler.source import make_context
from treadle.dialects.diagram.array import (
    DYNAMIC,
    FORMATS,
    ArrayEncoding,
    SizesAttr,
    array_type,
    axes_of,
    check_array,
    check_axis_name,
    encoding_of,
    format_of,
    is_array,
    level_of,
    merge_sizes,
    shape_of,
    sizes_of,
    with_format,
    with_level,
)
from treadle.dialects.hierarchy.schedule import (
    UNDECIDED,
    PartitionAttr,
    ScheduleAttr,
    StepAttr,
    derivation_of,
    record,
)

FIRST = string.ascii_letters
# built of letters: drawing from a pattern is so slow that Hypothesis complains on a busy machine
names = st.builds(str.__add__, st.sampled_from(FIRST), st.text(f"{FIRST}{string.digits}_", max_size=10))
sizes = st.dictionaries(names, st.integers(0, 2**31 - 1), max_size=4)


def reparsed(attribute):
    return Parser(make_context(), str(attribute)).parse_attribute()


@given(sizes)
def test_sizes_round_trip(given):
    attribute = SizesAttr(given)
    assert reparsed(attribute) == attribute
    assert attribute.as_dict() == given


@given(
    st.lists(names, unique=True, max_size=4),
    st.sampled_from([None, "device", "shared", "register"]),
    st.sampled_from([None, StringAttr("rows")]),
)
def test_encodings_round_trip(axes, level, layout):
    encoding = ArrayEncoding(axes, level, layout)
    assert reparsed(encoding) == encoding
    assert (encoding.axis_names, encoding.level_name) == (tuple(axes), level)


@given(st.lists(names, unique=True, min_size=3, max_size=3), st.sampled_from([UNDECIDED, 1, 64]))
def test_schedules_round_trip(axes, size):
    q, x, d = axes
    schedule = ScheduleAttr({q: size}, {x: size}, {d: 64}, {q: 4})
    assert reparsed(schedule) == schedule
    assert schedule.is_decided == (size != UNDECIDED)
    assert schedule.tile_sizes() == {q: size, x: size, d: 64}


@pytest.mark.parametrize("name", ["", "1q", "q d", 'q"', "q*/", "é", "q" * 64, "_q", "q\n"])
def test_axis_names_that_could_not_stand_in_c(name):
    with pytest.raises(VerifyException, match="is not an identifier"):
        check_axis_name(name)
    with pytest.raises(VerifyException):
        ArrayEncoding([name])
    with pytest.raises(VerifyException):
        SizesAttr({name: 1})
    with pytest.raises(VerifyException):
        PartitionAttr({name: 1})


def test_reading_an_array_type():
    tensor = array_type(f16, {"q": DYNAMIC, "d": 64}, "shared")
    memref = MemRefType(f16, [DYNAMIC, 64], memory_space=ArrayEncoding(["q", "d"], "shared"))
    for type in (tensor, memref):
        assert is_array(type)
        assert axes_of(type) == ("q", "d")
        assert shape_of(type) == (DYNAMIC, 64)
        assert sizes_of(type) == {"q": DYNAMIC, "d": 64}
        assert format_of(type) == f16
        assert level_of(type) == "shared"


def test_a_scalar_is_the_array_without_axes():
    for type in (f32, i32):
        assert not is_array(type)
        assert (axes_of(type), shape_of(type), sizes_of(type), level_of(type)) == ((), (), {}, None)
        assert format_of(type) == type
        assert encoding_of(type) == ArrayEncoding([])
    assert not is_array(TensorType(f32, [4]))


def test_changing_an_array_type():
    tensor = array_type(f16, {"q": 8}, "shared", StringAttr("rows"))
    assert with_format(tensor, f32) == array_type(f32, {"q": 8}, "shared", StringAttr("rows"))
    assert with_level(tensor, "register") == array_type(f16, {"q": 8}, "register")


@pytest.mark.parametrize("format", FORMATS)
def test_supported_formats(format):
    check_array(array_type(format, {"q": 8}), "it")
    check_array(format, "it")


@pytest.mark.parametrize("type", [f64, TensorType(f32, [4]), array_type(f64, {"q": 8})])
def test_unsupported_types(type):
    with pytest.raises(VerifyException, match=r"f16, bf16, f32, i8, ui8, i32"):
        check_array(type, "it")


def test_sizes_must_agree():
    assert merge_sizes([("a", array_type(bf16, {"q": 8})), ("b", array_type(f32, {"q": 8, "x": 3}))]) == {
        "q": 8,
        "x": 3,
    }
    with pytest.raises(VerifyException, match="axis 'q' has size 8 in a but 9 in b"):
        merge_sizes([("a", array_type(f32, {"q": 8})), ("b", array_type(f32, {"q": 9}))])


def test_a_derivation_grows():
    attributes = {}
    assert derivation_of(attributes) == ()
    record(attributes, [])
    assert attributes == {}
    steps = [StepAttr("fusion", "@a", "recolour", 'why "so"'), StepAttr("tiling", "q", "group", "")]
    for step in steps:
        record(attributes, [step])
    assert derivation_of(attributes) == tuple(steps)
    assert [reparsed(step) for step in steps] == steps


def test_the_standard_laws_parse():
    names = standard_laws()
    assert names >= {"softmax", "variance"}
    laws = {name: standard_law(name) for name in names}
    assert all(law is not None and law.sym_name.data == name for name, law in laws.items())
    assert standard_law("median") is None
    assert standard_law("../laws/softmax") is None


@given(sizes, st.sampled_from([f16, f32, i32]), st.sampled_from([None, "device", "shared", "register"]))
def test_types_that_are_kept_are_what_is_made_anew(sizes, format, level):
    made = array_type(format, sizes, level)
    assert made is array_type(format, dict(sizes), level)
    assert made == TensorType(format, tuple(sizes.values()), ArrayEncoding(tuple(sizes), level))
    assert sizes_of(made) == sizes
    turned = dict(reversed(sizes.items()))
    assert (array_type(format, turned, level) == made) is (len(sizes) < 2)


@given(st.dictionaries(names, st.integers(1, 4096), max_size=3))
def test_partitions_that_are_kept_are_what_is_made_anew(sizes):
    schedule = ScheduleAttr(sizes, {}, {})
    assert schedule.group == PartitionAttr(sizes)
    assert schedule.group.as_dict() == sizes
