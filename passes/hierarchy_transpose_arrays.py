"""`hierarchy-transpose-arrays`: another order of axes for arrays of which groups take one neighbour at a time, or
reduce what they make of neighbours."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects import func
from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass

from treadle.compiler.errors import Refusal
from treadle.dialects.hierarchy import KernelOp
from treadle.passes._functions import kernels_named, label, note
from treadle.passes.kernels.far_neighbours import Transposition
from treadle.passes.kernels.transposed import transpose
from treadle.passes.kernels.transposing import Trial

PASS = "hierarchy-transpose-arrays"
LAW = "order of axes"


@dataclass(frozen=True)
class HierarchyTransposeArraysPass(ModulePass):
    """Transpose arrays whose neighbours in memory the groups of a kernel would take one at a time, where that saves
    time: in a product for each index of the last axis, every element would be loaded by itself, from a sector of its
    own. The axes of which a group takes one index come first then. So does an axis that groups hold whole and reduce of
    all pairs of elements, as that of the coordinates where the nearest of some points is looked for: lanes lie along
    the points then, and each has all coordinates of its own. What kernels alone make and read is saved in that order;
    what the function is given, or gives, is copied by a kernel of its own, which reads and writes whole lines.

    With `arrays` these are transposed, whatever the model says; with `kernel` only for that kernel.

    Before:

    ```
    !A = tensor<?x?x64xf16, #diagram.array<[i, k, c]>>
    !Ad = tensor<?x?x64xf16, #diagram.array<[i, k, c], level = device>>
    !B = tensor<64x?x?xf16, #diagram.array<[c, j, k]>>
    !Bd = tensor<64x?x?xf16, #diagram.array<[c, j, k], level = device>>
    !C = tensor<64x?x?xf32, #diagram.array<[c, i, j]>>
    !Cr = tensor<64x?x?xf32, #diagram.array<[c, i, j], level = register>>
    func.func @f(%A: !A, %B: !B) -> !C {
      %C = hierarchy.kernel @f (%a = %A : !A as !Ad, %b = %B : !B as !Bd) -> (!C) {
        %c = diagram.contract %a, %b over [k] accumulate f32 : !Ad, !Bd -> !Cr
        hierarchy.yield %c : !Cr
      }
      func.return %C : !C
    }
    ```

    After `hierarchy-transpose-arrays{arrays=A}`:

    ```
    !A = tensor<?x?x64xf16, #diagram.array<[i, k, c]>>
    !Ad = tensor<?x?x64xf16, #diagram.array<[i, k, c], level = device>>
    !T = tensor<64x?x?xf16, #diagram.array<[c, i, k]>>
    !Td = tensor<64x?x?xf16, #diagram.array<[c, i, k], level = device>>
    !Tr = tensor<64x?x?xf16, #diagram.array<[c, i, k], level = register>>
    !B = tensor<64x?x?xf16, #diagram.array<[c, j, k]>>
    !Bd = tensor<64x?x?xf16, #diagram.array<[c, j, k], level = device>>
    !C = tensor<64x?x?xf32, #diagram.array<[c, i, j]>>
    !Cr = tensor<64x?x?xf32, #diagram.array<[c, i, j], level = register>>
    func.func @f(%A: !A, %B: !B) -> !C {
      %A_transposed = hierarchy.kernel @f_A (%a = %A : !A as !Ad) -> (!T) {
        %t = diagram.map (%x = %a : !Ad) -> !Tr {
          diagram.yield %x : f16
        }
        hierarchy.yield %t : !Tr
      }
      %C = hierarchy.kernel @f (%a = %A_transposed : !T as !Td, %b = %B : !B as !Bd) -> (!C) {
        %c = diagram.contract %a, %b over [k] accumulate f32 : !Td, !Bd -> !Cr
        hierarchy.yield %c : !Cr
      }
      func.return %C : !C
    }
    ```

    Legal always: operations find the axes of an array by name, so that their order says nothing but where elements lie.
    Arrays that something reads by position (a view, a condition on its numbers) stay as they are. All arrays of a
    kernel are transposed at first, then those are left alone that save nothing: together they must save a tenth at the
    sizes that the program states, and take no longer where axes known only at launch are long."""

    name = PASS

    arrays: tuple[str, ...] = ()
    kernel: str = ""

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        named = kernels_named(op, self.kernel)
        done = [each for pair in named for each in self._transpose(op, *pair)]
        if missing := [name for name in self.arrays if name not in done]:
            raise Refusal(
                op,
                f"there is no array %{missing[0]} to transpose: of no kernel that reads or saves it do the groups take "
                "its neighbours in memory one at a time or reduce pairs of them, or something finds its elements by "
                "position",
            )

    def _transpose(self, module: ModuleOp, function: func.FuncOp, kernel: KernelOp) -> list[str]:
        """The names of the arrays that are transposed."""
        if kernel.schedule is not None or kernel.is_expanded:
            return []
        trial = Trial(module, function, kernel)
        turns = trial.possible()
        asked = [turn for turn in turns if turn.value.name_hint in self.arrays]
        if self.arrays:
            return _apply(function, kernel, asked, "asked for")
        if not turns:
            return []
        chosen, why = trial.fastest(turns)
        if not chosen:
            note(function, f"decline {PASS}", _names(kernel, turns), "a tenth must be saved", why)
        return _apply(function, kernel, chosen, why)


def _apply(function: func.FuncOp, kernel: KernelOp, turns: Sequence[Transposition], why: str) -> list[str]:
    names = [turn.value.name_hint or "" for turn in turns]
    steps = [(f"{label(turn.value)} of @{kernel.kernel_name.data} as [{', '.join(turn.axes)}]", turn) for turn in turns]
    for subject, turn in steps:
        copy = transpose(kernel, turn)
        how = "saved so" if copy is None else f"copied by @{copy.kernel_name.data}"
        note(function, PASS, subject, LAW, f"{how}: {why}")
    return names


def _names(kernel: KernelOp, turns: Iterable[Transposition]) -> str:
    return f"{', '.join(label(turn.value) for turn in turns)} of @{kernel.kernel_name.data}"
