"""The last look at kernels that somebody may have edited: whether their threads wait for each other where they must."""

from __future__ import annotations

from xdsl.dialects.builtin import ModuleOp

from treadle.compiler.errors import at

WHAT_TO_DO = "put it right, or make the kernel again from the hierarchy level"


def check_synchronised(module: ModuleOp) -> None:
    """Refuse kernels at `cuda` level whose barriers, rings or copies do not keep order (TreadleError). What the
    pipeline makes is checked where it is made, and by the tests: this is for modules that were read, and for passes in
    another order."""
    if not any(op.name == "cuda.kernel" for op in module.body.block.ops):
        return
    # Imported here: few programs arrive as kernels.
    from treadle.compiler.meetings import meeting_problems
    from treadle.compiler.rings import ring_problems
    from treadle.dialects.cuda import KernelOp

    for kernel in [op for op in module.body.block.ops if isinstance(op, KernelOp)]:
        try:
            problem = next(iter([*ring_problems(kernel), *meeting_problems(kernel)]), None)
        except KeyError as error:
            unknown = getattr(error.args[0], "name_hint", None) or "a number"
            problem = f"a loop or a branch depends on %{unknown}, which is not told from sizes"
        if problem is not None:
            raise at(kernel, f"{problem}: {WHAT_TO_DO}")


__all__ = ["check_synchronised"]
