"""What the streams of a decorated kernel will do, by the same laws that expand them, with no tiles made."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from xdsl.ir import Attribute, Block, Operation, SSAValue

from treadle.passes.streams.stream import Named, Scope, StreamParts


class Steps(StreamParts):
    """The operations of steps and of what finishes a stream. What they take from outside stands as arguments of
    blocks of their own, so that the kernel is left as it is."""

    def operations(self) -> Iterator[tuple[Operation, int | None]]:
        """All that a group computes, each with the stream whose steps do it; None where it is done once."""
        for op in self.plan.part.ops:
            if self.plan.is_fixed(op.results[0]):
                yield op, None
        for stream in self.plan.streams:
            yield from ((op, stream) for op in self._of_step(stream))
            yield from ((op, None) for op in self._told(stream))
            yield from ((op, None) for op in self.plan.finish_of(stream))

    def _of_step(self, stream: int) -> list[Operation]:
        block = Block(arg_types=[state.type for state in self.plan.states_in(stream)])
        self.step(Scope(Block(), {}), stream, block)
        return list(block.ops)

    def _told(self, stream: int) -> list[Operation]:
        """What is said of finished states, and what that takes once."""
        states = self.plan.states_in(stream)
        block = Block(arg_types=[state.type for state in states])
        ends: Named = dict[SSAValue, SSAValue](zip(states, block.args, strict=True))
        outer = Scope(Block(), {})
        scope = outer.inner(block)
        scope.values |= ends
        self.tell_undefined(outer, scope, stream, ends)
        return [*outer.block.ops, *block.ops]

    def tile(self, type: Attribute) -> Attribute:
        return type

    def fetch(self, scope: Scope, value: SSAValue) -> None:
        scope.values[value] = scope.block.insert_arg(value.type, len(scope.block.args))

    def leave(self, scope: Scope, value: SSAValue) -> None:
        pass

    def end(self, block: Block, values: Sequence[SSAValue]) -> None:
        pass
