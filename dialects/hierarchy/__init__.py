"""`hierarchy`: where and in what order.

The same operations as in `diagram`, decorated. Every array has a memory *level* (`device`, `shared`,
`register`), the colour of the drawings; every axis of a kernel is *grouped* (cut into pieces that run
independently), *streamed* (fed in pieces through a state), or held *whole*. `fusion`, `streaming` and
`tiling` only decorate; choosing sizes fills in the numbers; expanding makes the loops explicit:

```
hierarchy.kernel @attention (...) saves (%O: memref<...>) -> (!O) {
  hierarchy.group [q = 64] {
    %q = hierarchy.load %Q : ...                                   // device -> shared
    %o = hierarchy.stream [x = 64] -> (!o) initialise { ... }      // m = -inf, l = 0, acc = 0
      step (%m: !m, %l: !m, %acc: !o) { ... }                      // one piece of keys and values
      finish (%m: !m, %l: !m, %acc: !o) { ... }                    // acc / l
    hierarchy.save %o into %O : ...
  }
  hierarchy.yield
}
```

A load or save is the only thing that crosses a level, so transfers are counted by looking at them: the size
of the piece, times the groups, times the steps of the streams around it.

Theory: arXiv 2412.03317, sections 3 and 4.
"""

from xdsl.ir import Dialect

from treadle.dialects.hierarchy.kernel import KernelOp, given_for, saved_as
from treadle.dialects.hierarchy.pieces import LoadOp, PieceOp, SaveOp
from treadle.dialects.hierarchy.schedule import PartitionAttr, ScheduleAttr, StepAttr
from treadle.dialects.hierarchy.select import SelectOp
from treadle.dialects.hierarchy.selection import SelectionType
from treadle.dialects.hierarchy.stream import GroupOp, StreamOp
from treadle.dialects.hierarchy.yields import YieldOp

Hierarchy = Dialect(
    "hierarchy",
    [GroupOp, KernelOp, LoadOp, PieceOp, SaveOp, SelectOp, StreamOp, YieldOp],
    [PartitionAttr, ScheduleAttr, SelectionType, StepAttr],
)

__all__ = [
    "GroupOp",
    "Hierarchy",
    "KernelOp",
    "LoadOp",
    "PartitionAttr",
    "PieceOp",
    "SaveOp",
    "ScheduleAttr",
    "SelectOp",
    "SelectionType",
    "StepAttr",
    "StreamOp",
    "YieldOp",
    "given_for",
    "saved_as",
]
