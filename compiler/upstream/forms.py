"""How each form is read: the clauses between an operation's name and the type of its result."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from xdsl.dialects import linalg
from xdsl.dialects.builtin import (
    AffineMapAttr,
    ArrayAttr,
    DenseArrayBase,
    ShapedType,
    StringAttr,
    TensorType,
    i64,
)
from xdsl.dialects.linalg.attrs import IteratorType, IteratorTypeAttr
from xdsl.ir import Attribute, Block, Operation, Region, SSAValue
from xdsl.ir.affine import AffineDimExpr, AffineMap
from xdsl.parser import Parser

from treadle.compiler.upstream.bodies import (
    ELEMENTWISE,
    NAMED_ELEMENTWISE,
    body_of,
    element_type,
    sum_of_products,
)
from treadle.compiler.upstream.softmax import SoftmaxOp

PRODUCTS = {
    "matmul": "m k, k n, m n",
    "matmul_transpose_a": "k m, k n, m n",
    "matmul_transpose_b": "m k, n k, m n",
    "batch_matmul": "b m k, b k n, b m n",
    "batch_matmul_transpose_a": "b k m, b k n, b m n",
    "batch_matmul_transpose_b": "b m k, b n k, b m n",
    "batch_reduce_matmul": "b m k, b k n, m n",
    "matvec": "m k, k, m",
    "vecmat": "k, k n, n",
    "batch_matvec": "b m k, b k, b m",
    "batch_vecmat": "b k, b k n, b n",
    "dot": "k, k, ",
}
"""Dimensions of the operands and the result of the named products."""

DIRECT = {"add", "copy", "exp", "fill", "log", "max", "min", "mul", "select", "sqrt", "sub"}
"""What xDSL reads and verifies as upstream means it."""


@dataclass(frozen=True)
class Form:
    """In the place of an operation's class: what a parser asks of one."""

    read: Callable[[Parser], Operation]

    def parse(self, parser: Parser) -> Operation:
        return self.read(parser)

    def dialect_name(self) -> str:
        return "linalg"


@dataclass
class Clauses:
    """What stands between the name and the type of the result."""

    words: dict[str, Attribute | str] = field(default_factory=dict[str, "Attribute | str"])
    inputs: Sequence[SSAValue] = ()
    outputs: Sequence[SSAValue] = ()
    results: Sequence[Attribute] = ()
    attributes: dict[str, Attribute] = field(default_factory=dict[str, Attribute])

    @property
    def operands(self) -> Sequence[SSAValue]:
        return (*self.inputs, *self.outputs)


def read_clauses(parser: Parser) -> Clauses:
    found = Clauses()
    while (word := _optional_word(parser)) is not None:
        found.words |= word
    found.attributes = dict(parser.parse_optional_attr_dict())
    found.inputs = read_operands(parser, "ins")
    found.outputs = read_operands(parser, "outs")
    found.results = read_results(parser)
    return found


def read_results(parser: Parser) -> Sequence[Attribute]:
    """One type, or several in parentheses, which xDSL reads without any."""
    if not parser.parse_optional_punctuation("->"):
        return ()
    several = parser.parse_optional_comma_separated_list(parser.Delimiter.PAREN, parser.parse_type)
    return several or parser.parse_comma_separated_list(parser.Delimiter.NONE, parser.parse_type)


def _optional_word(parser: Parser) -> dict[str, Attribute | str] | None:
    """`indexing_maps = [...]`, `kind=#linalg.elementwise_kind<...>`, or `cast = #linalg.type_fn<...>`."""
    if parser.parse_optional_keyword("indexing_maps"):
        parser.parse_punctuation("=")
        return {"indexing_maps": parser.parse_attribute()}
    for word, type in (("kind", "elementwise_kind"), ("cast", "type_fn")):
        if parser.parse_optional_keyword(word):
            parser.parse_punctuation("=")
            parser.parse_characters(f"#linalg.{type}")
            parser.parse_punctuation("<")
            kind = parser.parse_identifier()
            parser.parse_punctuation(">")
            return {word: kind}
    return None


def read_operands(parser: Parser, word: str) -> Sequence[SSAValue]:
    position = parser.pos
    if not parser.parse_optional_keyword(word):
        return ()
    with parser.in_parens():
        names = parser.parse_comma_separated_list(parser.Delimiter.NONE, parser.parse_unresolved_operand)
        parser.parse_punctuation(":")
        types = parser.parse_comma_separated_list(parser.Delimiter.NONE, parser.parse_type)
    return parser.resolve_operands(names, types, position)


# -- the operations ------------------------------------------------------------------------------------


def read_product(name: str) -> Callable[[Parser], Operation]:
    def read(parser: Parser) -> Operation:
        start = parser.pos
        clauses = read_clauses(parser)
        own = _maps(PRODUCTS[name]) if name in PRODUCTS else None
        maps = _given_maps(parser, clauses) or own
        if maps is None:
            parser.raise_error(f"linalg.{name} needs indexing_maps", start, parser.pos)
        types = {element_type(operand.type) for operand in clauses.operands}
        if name == "matmul" and maps == own and len(types) == 1:  # what xDSL has an operation for stays one
            return linalg.ops.MatmulOp(clauses.inputs, clauses.outputs, [*clauses.results], clauses.attributes)
        if clauses.words.get("cast") == "cast_unsigned":
            parser.raise_error(f"linalg.{name} of unsigned numbers cannot be read: cast the operands first", start)
        return _generic(parser, start, clauses, maps, lambda: body_of(clauses.operands, sum_of_products))

    return read


def read_elementwise(name: str | None) -> Callable[[Parser], Operation]:
    """A named elementwise operation, or `linalg.elementwise`, which names its kind."""

    def read(parser: Parser) -> Operation:
        start = parser.pos
        clauses = read_clauses(parser)
        kind = name or str(clauses.words.get("kind", ""))
        table = NAMED_ELEMENTWISE if name else ELEMENTWISE
        if kind not in table:
            parser.raise_error(f"elementwise kind '{kind}' is none of {', '.join(sorted(table))}", start, parser.pos)
        maps = _given_maps(parser, clauses) or [AffineMap.identity(_rank(clauses.outputs))] * len(clauses.operands)
        return _generic(parser, start, clauses, maps, lambda: body_of(clauses.operands, table[kind]))

    return read


def read_generic(parser: Parser) -> Operation:
    """As xDSL reads it, and with several results, which it prints in parentheses and does not read."""
    start = parser.pos
    attributes = dict(parser.parse_optional_attr_dict())
    maps, kinds = attributes.pop("indexing_maps", None), attributes.pop("iterator_types", None)
    if not isinstance(maps, ArrayAttr) or not isinstance(kinds, ArrayAttr):
        parser.raise_error("linalg.generic needs the lists indexing_maps and iterator_types", start, parser.pos)
    places = [each for each in maps if isinstance(each, AffineMapAttr)]  # pyright: ignore
    loops = [_kind_of_loop(parser, kind, start) for kind in kinds]  # pyright: ignore
    notes = [attributes.pop(name, None) for name in ("doc", "library_call")]
    inputs, outputs = (read_operands(parser, word) for word in ("ins", "outs"))
    if parser.parse_optional_keyword("attrs"):
        parser.parse_punctuation("=")
        attributes |= parser.parse_optional_attr_dict()
    region = parser.parse_region()
    doc, call = (note if isinstance(note, StringAttr) else None for note in notes)
    generic = linalg.ops.GenericOp(inputs, outputs, region, places, loops, read_results(parser), doc, call)
    generic.attributes |= attributes
    return generic


def _kind_of_loop(parser: Parser, kind: object, start: int) -> IteratorTypeAttr:
    if isinstance(kind, IteratorTypeAttr):
        return kind
    try:
        return IteratorTypeAttr(IteratorType(kind.data if isinstance(kind, StringAttr) else kind))
    except ValueError:
        parser.raise_error(f"a loop is of the kind {kind}, which is none", start, parser.pos)


def read_map(parser: Parser) -> Operation:
    """`linalg.map { op } ins(...) outs(...)`, or with a region; in either case one turn for each element."""
    start = parser.pos
    short = _optional_payload(parser)
    clauses = read_clauses(parser)
    region = _payload_region(parser, short, clauses.operands) if short else _region(parser, clauses.operands)
    clauses.results = _tensors(clauses.outputs)
    maps = [AffineMap.identity(_rank(clauses.outputs))] * len(clauses.operands)
    return _generic(parser, start, clauses, maps, lambda: region)


def read_reduce(parser: Parser) -> Operation:
    """`linalg.reduce { op } ins(...) outs(...) dimensions = [...]`; with a region, it is as xDSL reads it."""
    start = parser.pos
    short = _optional_payload(parser)
    if short is None:
        return linalg.ops.ReduceOp.parse(parser)
    clauses = read_clauses(parser)
    parser.parse_keyword("dimensions")
    parser.parse_punctuation("=")
    dimensions = parser.parse_comma_separated_list(parser.Delimiter.SQUARE, parser.parse_integer)
    if len(clauses.inputs) != 1 or len(clauses.outputs) != 1:
        parser.raise_error("a linalg.reduce in this short form takes one input and one start", start, parser.pos)
    (input,), (init,) = clauses.inputs, clauses.outputs
    region = _payload_region(parser, short, (input, init), start_first=True)
    return linalg.ops.ReduceOp(input, init, DenseArrayBase.from_list(i64, dimensions), region)


def read_softmax(parser: Parser) -> Operation:
    parser.parse_keyword("dimension")
    with parser.in_parens():
        dimension = parser.parse_integer()
    start = parser.pos
    clauses = read_clauses(parser)
    if len(clauses.inputs) != 1 or len(clauses.outputs) != 1:
        parser.raise_error("linalg.softmax takes one input and one output", start, parser.pos)
    return SoftmaxOp(clauses.inputs[0], clauses.outputs[0], dimension)


FORMS: dict[str, Form] = {
    **{f"linalg.{name}": Form(read_elementwise(name)) for name in NAMED_ELEMENTWISE if name not in DIRECT},
    **{f"linalg.{name}": Form(read_product(name)) for name in (*PRODUCTS, "contract")},
    "linalg.elementwise": Form(read_elementwise(None)),
    "linalg.generic": Form(read_generic),
    "linalg.map": Form(read_map),
    "linalg.reduce": Form(read_reduce),
    "linalg.softmax": Form(read_softmax),
}


# -- what they are made of -----------------------------------------------------------------------------


def _generic(
    parser: Parser, start: int, clauses: Clauses, maps: Sequence[AffineMap], body: Callable[[], Region]
) -> Operation:
    """The `linalg.generic`; a loop is a reduction where no result has it."""
    if len(maps) != len(clauses.operands):
        parser.raise_error(f"{len(maps)} indexing maps for {len(clauses.operands)} operands", start, parser.pos)
    written = {
        result.position
        for each in maps[len(clauses.inputs) :]
        for result in each.results
        if isinstance(result, AffineDimExpr)
    }
    loops = [
        IteratorTypeAttr.parallel() if loop in written else IteratorTypeAttr.reduction()
        for loop in range(maps[0].num_dims)
    ]
    try:
        region = body()
    except ValueError as error:
        parser.raise_error(str(error), start, parser.pos)
    listed = [AffineMapAttr(each) for each in maps]
    results = clauses.results or _tensors(clauses.outputs)
    generic = linalg.ops.GenericOp(clauses.inputs, clauses.outputs, region, listed, loops, results)
    generic.attributes |= clauses.attributes
    return generic


def _maps(text: str) -> list[AffineMap]:
    """From dimensions by letter to maps, loops of the result first."""
    lists = [part.split() for part in text.split(",")]
    loops = list(dict.fromkeys([*lists[-1], *(letter for part in lists for letter in part)]))
    return [AffineMap(len(loops), 0, tuple(AffineDimExpr(loops.index(letter)) for letter in part)) for part in lists]


def _given_maps(parser: Parser, clauses: Clauses) -> list[AffineMap] | None:
    given = clauses.words.get("indexing_maps") or clauses.attributes.pop("indexing_maps", None)
    if given is None:
        return None
    if not isinstance(given, ArrayAttr) or not all(isinstance(each, AffineMapAttr) for each in given):  # pyright: ignore
        parser.raise_error("indexing_maps is a list of affine maps")
    return [each.data for each in given if isinstance(each, AffineMapAttr)]  # pyright: ignore


def _optional_payload(parser: Parser) -> type[Operation] | None:
    """The one operation of `{ arith.addf }`; its attributes only say what may be rounded otherwise."""
    if not parser.parse_optional_punctuation("{"):
        return None
    start = parser.pos
    name = parser.parse_identifier()
    found = parser.ctx.get_optional_op(name)
    if found is None:
        parser.raise_error(f"unknown operation '{name}'", start, parser.pos)
    parser.parse_optional_attr_dict()
    parser.parse_punctuation("}")
    return found


def _payload_region(
    parser: Parser, payload: type[Operation], operands: Sequence[SSAValue], start_first: bool = False
) -> Region:
    def compute(elements: Sequence[SSAValue]) -> SSAValue:
        *inputs, out = elements
        given = (out, *inputs) if start_first else inputs
        for more in ((), (out.type,)):  # a conversion is also given the type that it makes
            try:
                return payload(*given, *more).results[0]
            except TypeError:
                continue
        parser.raise_error(f"{payload.name} does not compute one element from {len(given)}")

    return body_of(operands, compute)


def _region(parser: Parser, operands: Sequence[SSAValue]) -> Region:
    """A region with a list of arguments before it; the last one, for the result's own element, may be left out."""
    arguments = parser.parse_comma_separated_list(parser.Delimiter.PAREN, parser.parse_argument)
    region = parser.parse_region(arguments)
    block: Block = region.block
    if len(arguments) == len(operands) - 1:
        block.insert_arg(element_type(operands[-1].type), len(arguments))
    return region


def _rank(outputs: Sequence[SSAValue]) -> int:
    type = outputs[0].type if outputs else None
    return len(type.get_shape()) if isinstance(type, ShapedType) else 0


def _tensors(outputs: Sequence[SSAValue]) -> list[Attribute]:
    types: list[Attribute] = [each.type for each in outputs]
    return [type for type in types if isinstance(type, TensorType)]
