"""The layout algebra: where elements lie in registers, shared and device memory, and what moving them costs.

One kind of map serves fragments, tiles and arrays (`Map`: digits with strides over named axes, after CuTe), with a
matrix over GF(2) beside it where sizes are powers of two and a swizzle must be seen through (`bits`, after Triton's
linear layouts, arXiv 2505.23819). On them stand what the compiler asks for:

| module | answers |
| --- | --- |
| `digits`, `maps` | composition, inverse, slice, product, division, refinement, equality |
| `bits` | the same as matrices: rank, kernel, image, inverse |
| `fragments` | fragments as maps; the same elements in the same threads?; digits of one from digits of another |
| `accesses` | which elements each lane moves in each instruction |
| `vectors` | how wide an access may be |
| `sectors` | sectors and lines of device memory, and the fewest possible |
| `tiles`, `conflicts`, `swizzle` | shared memory: tiles, wavefronts of an access (proved by rank), the best layout |
| `exchange`, `conversions` | from one fragment layout to another: registers, shuffles or shared memory, with costs |

Nothing here changes IR. `docs/layouts.md` explains it with pictures."""

from treadle.compiler.layouts.accesses import Access, fragment_access, matrix_rows, right_tf32, row_copy
from treadle.compiler.layouts.bits import BitMatrix, matrix
from treadle.compiler.layouts.conflicts import Wavefronts, is_conflict_free, wavefronts
from treadle.compiler.layouts.conversions import Conversion, Cost, plan_conversion
from treadle.compiler.layouts.digits import LayoutError, Term, digit_of
from treadle.compiler.layouts.fragments import as_layout, fragment, meets, register_digits, same_elements
from treadle.compiler.layouts.maps import Map, refine
from treadle.compiler.layouts.sectors import Traffic, dense_strides, traffic
from treadle.compiler.layouts.swizzle import Choice, choose_rows
from treadle.compiler.layouts.tiles import Tile, natural_swizzle, tile_rows
from treadle.compiler.layouts.vectors import ladder, widest_copy, widest_fragment, widest_in_memory

__all__ = [
    "Access",
    "BitMatrix",
    "Choice",
    "Conversion",
    "Cost",
    "LayoutError",
    "Map",
    "Term",
    "Tile",
    "Traffic",
    "Wavefronts",
    "as_layout",
    "choose_rows",
    "dense_strides",
    "digit_of",
    "fragment",
    "fragment_access",
    "is_conflict_free",
    "ladder",
    "matrix",
    "matrix_rows",
    "meets",
    "natural_swizzle",
    "plan_conversion",
    "refine",
    "register_digits",
    "right_tf32",
    "row_copy",
    "same_elements",
    "tile_rows",
    "traffic",
    "wavefronts",
    "widest_copy",
    "widest_fragment",
    "widest_in_memory",
]
