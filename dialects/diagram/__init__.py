"""`diagram`: what is computed.

A value is an array of numbers with *named axes*: a builtin `tensor` whose encoding is
`#diagram.array<[q, d]>`. An axis belongs to the whole program; its size stands in the types, or is `?`
and known only at launch. The name of an axis is all that connects operations: a contraction over `d`
multiplies where both operands have `d`, sums, and is *weaved* (mapped) over every other axis; an operand
without an axis is broadcast along it. Batch and head axes are such weaved axes and need no operation of
their own. The order of the axes in a type is the order in memory, and nothing else: a transposed operand
is the same diagram.

```
!Q = tensor<?x64xf16, #diagram.array<[q, d]>>
!K = tensor<?x64xf16, #diagram.array<[x, d]>>
!S = tensor<?x?xf32, #diagram.array<[q, x]>>
%S = diagram.contract %Q, %K over [d] accumulate f32 : !Q, !K -> !S
```

Operations: `contract`, `reduce`, `scan` (prefix sums), `map`, `cast`, `fill`, `extent`, `index` (positions along an
axis), `where` (the elements at which a condition holds), `read` (an affine window or diagonal of an array), `scatter`
(elements added up where data say), `recurrence` (states taken from position to position), in which arrays may be under
other names of their axes (`rename`), `swap` (neighbouring blocks along an axis), `collapse` and `expand` (axes as one
axis, and back), and `apply`, which applies a `law` (softmax, say) by name. Number formats, the accumulator's included,
are part of the algorithm. Over the real numbers a cast is the identity; the interpreter computes in float64 and is the
reference for everything below.

Theory: arXiv 2412.03317, sections 2 and 3.
"""

from xdsl.ir import Dialect

from treadle.dialects.diagram.array import ArrayEncoding, SizesAttr
from treadle.dialects.diagram.collapse import CollapseOp, ExpandOp
from treadle.dialects.diagram.condition import ConditionAttr
from treadle.dialects.diagram.contract import ContractOp
from treadle.dialects.diagram.elements import CastOp, ExtentOp, FillOp, IndexOp
from treadle.dialects.diagram.law import ApplyOp, LawOp
from treadle.dialects.diagram.map import MapOp
from treadle.dialects.diagram.place import PlaceAttr
from treadle.dialects.diagram.random import RandomOp
from treadle.dialects.diagram.read import ReadOp
from treadle.dialects.diagram.recurrence import RecurrenceOp
from treadle.dialects.diagram.reduce import ReduceOp
from treadle.dialects.diagram.rename import RenameOp
from treadle.dialects.diagram.scan import ScanOp
from treadle.dialects.diagram.scatter import ScatterOp
from treadle.dialects.diagram.swap import SwapOp
from treadle.dialects.diagram.where import WhereOp
from treadle.dialects.diagram.yields import YieldOp

Diagram = Dialect(
    "diagram",
    [
        ApplyOp,
        CastOp,
        CollapseOp,
        ContractOp,
        ExpandOp,
        ExtentOp,
        FillOp,
        IndexOp,
        LawOp,
        MapOp,
        RandomOp,
        ReadOp,
        RecurrenceOp,
        ReduceOp,
        RenameOp,
        ScanOp,
        ScatterOp,
        SwapOp,
        WhereOp,
        YieldOp,
    ],
    [ArrayEncoding, ConditionAttr, PlaceAttr, SizesAttr],
)
