"""Random bits of positions (`diagram.random`) in `arith`, whose products of 64 bits have both words of a round."""

from __future__ import annotations

from xdsl.dialects import arith
from xdsl.dialects.builtin import IntegerAttr, IntegerType, i32, i64
from xdsl.ir import SSAValue

from treadle.dialects.diagram.random import BLOCK, KEY_STEP, MULTIPLIER, ROUNDS, RandomOp


def random_in_arith(op: RandomOp, key: SSAValue, row: SSAValue, column: SSAValue) -> SSAValue:
    """The bits of an operation, where the builder around stands."""
    if not op.are_shared:
        return _words(key, row, column)[0]
    first, second = _words(key, _block(row), _block(column))
    word = arith.SelectOp(_has_bit(row), second, first).result
    high = arith.ShRUIOp(word, _number(16)).result
    low = arith.AndIOp(word, _number(0xFFFF)).result
    return arith.SelectOp(_has_bit(column), high, low).result


def _words(key: SSAValue, x: SSAValue, y: SSAValue) -> tuple[SSAValue, SSAValue]:
    for number in range(ROUNDS):
        product = arith.MuliOp(arith.ExtUIOp(x, i64).result, _number(MULTIPLIER, i64)).result
        high = arith.TruncIOp(arith.ShRUIOp(product, _number(32, i64)).result, i32).result
        of_round = arith.AddiOp(key, _number(number * KEY_STEP)).result if number else key
        x, y = arith.XOrIOp(arith.XOrIOp(high, of_round).result, y).result, arith.TruncIOp(product, i32).result
    return x, y


def _block(position: SSAValue) -> SSAValue:
    return arith.OrIOp(position, _number(BLOCK)).result


def _has_bit(position: SSAValue) -> SSAValue:
    return arith.CmpiOp(arith.AndIOp(position, _number(BLOCK)).result, _number(0), "ne").result


def _number(value: int, type: IntegerType = i32) -> SSAValue:
    """A number modulo what its format holds, as one with a sign."""
    bits = type.width.data
    value %= 2**bits
    return arith.ConstantOp(IntegerAttr(value - 2**bits if value >= 2 ** (bits - 1) else value, type)).result
