"""Deliberate mistakes below the hierarchy: in the lowering to threads, in pipelining, roles, tensor copies, persistent
grids and widths of accesses. Programs are printed and emulated with them (`mutant_cuda.py`)."""

from __future__ import annotations

from mutated import Mutation

LOWERING = "compiler/lowering"

MUTATIONS: dict[str, Mutation] = {
    "approximations: reciprocals of any number": (
        "diagram_allow_approximations",
        " or smallest < LEAST_DIVISOR",
        "",
    ),
    # Reciprocals that are shared.
    "sharing: a cap is scaled twice": ("diagram_expand_approximations", "2 * cap * scale", "2 * cap * scale * scale"),
    "sharing: a quotient is not scaled": (
        "diagram_expand_approximations",
        "constant * scale_of(op) / summand",
        "constant / summand",
    ),
    "sharing: what is tested is a quarter only below": (
        "diagram_expand_approximations",
        "0.25 if constant is None else constant / 4",
        "1.0 if constant is None else constant",
    ),
    "sharing: of one element for all": ("compiler/printer/sharing", "add([first, digit])", "add([first, '0'])"),
    # Scans.
    "scans: lanes behind an element count": (
        "compiler/printer/scans",
        'if self.op.is_reverse else f"lane & {mask}"',
        'if not self.op.is_reverse else f"lane & {mask}"',
    ),
    "scans: registers beyond the lanes begin anew": (
        "compiler/printer/scans",
        "{text.before} = {text.so_far};",
        "{text.before} = {text.start(outer)};",
    ),
    # Lists of pieces.
    "selections: the list is read one too late": (
        "compiler/printer/selections",
        "({listed} + {COUNTS} + {turn})",
        "({listed} + {COUNTS + 1} + {turn})",
    ),
    "selections: threads ask of the same pieces": (
        "compiler/printer/selections",
        "int64_t(threadIdx.x) * {step}",
        "int64_t(threadIdx.x % 32) * {step}",
    ),
    "selections: nobody waits for the list": (
        f"{LOWERING}/barriers",
        "        case cuda.SelectOp():\n            return {base_of(op.tile)}, set()",
        "        case cuda.SelectOp():\n            return set(), set()",
    ),
    "selections: roles do not wait for the list": (
        "passes/warps/specialise",
        "self.top.add_op(cuda.BarrierOp())",
        "pass",
    ),
    "selections: whole pieces end elsewhere": (
        f"{LOWERING}/runs",
        "cuda.SelectedBeforeOp(listed.tile, run.end, listed.count)",
        "cuda.SelectedBeforeOp(listed.tile, runs[-1].end, listed.count)",
    ),
    "selections: nothing is behind the table": (
        f"{LOWERING}/selections",
        "bounds, padding=padding, scatter=scatter)",
        "bounds, scatter=scatter)",
    ),
    # Sums where data say.
    "scatter: elements are added before zeros are there": (
        "passes/kernels/scattered",
        "yield owner, adds",
        "yield adds, owner",
    ),
    "scatter: copies of a fragment are added, too": (
        "compiler/printer/accesses",
        "first = [copies] if copies is not None else []",
        "first = []",
    ),
    "scatter: what lies outside is added": (
        f"{LOWERING}/transfers",
        "        inside = lowering.padding_of(op.destination)\n",
        "        inside = []\n",
    ),
    # Blocks, warps, fragments.
    "lowering: forgets the last piece": (
        f"{LOWERING}/streams",
        "    if size == DYNAMIC or size % piece:\n        end",
        "    if False:\n        end",
    ),
    "lowering: the smaller piece is taken for a full one": (
        f"{LOWERING}/streams",
        "    lowering.bounded.add(op.axis)\n    lowering.partial = op.axis",
        "    lowering.partial = op.axis",
    ),
    "lowering: lanes keep their sums apart for ever": (
        f"{LOWERING}/streams",
        "lowering.values[arg] = combined(lowering, reduces[0], value, arg) if reduces else value",
        "lowering.values[arg] = value",
    ),
    "lowering: edges are not neutral in reductions": (
        f"{LOWERING}/reductions",
        "for axis in (axis for axis in op.over_axes if not is_filled(lowering, op.operand, axis)):",
        "for axis in ():",
    ),
    "lowering: what a product makes past an end is filled with zero": (
        f"{LOWERING}/fragments",
        "number_in(format_of(value.type), filler)",
        "number_in(format_of(value.type), 0.0)",
    ),
    "lowering: edges are not zero in products": (
        f"{LOWERING}/products",
        "value = masked(lowering, value, depth, zero, layout, begin, stop)",
        "value = value",
    ),
    "lowering: the state of a product is forgotten": (
        f"{LOWERING}/products",
        "        if op.init is None\n",
        "        if True\n",
    ),
    "lowering: no barrier after a read": (
        f"{LOWERING}/barriers",
        "if read & state.written or written & (state.written | state.read):",
        "if read & state.written:",
    ),
    "lowering: no barrier after a write": (
        f"{LOWERING}/barriers",
        "if read & state.written or written & (state.written | state.read):",
        "if written & (state.written | state.read):",
    ),
    "lowering: a condition off by one": (
        f"{LOWERING}/comparisons",
        'emit(arith.CmpiOp(total_of(less, terms, type, emit), total_of(more, terms, type, emit), "sle"))',
        'emit(arith.CmpiOp(total_of(less, terms, type, emit), total_of(more, terms, type, emit), "slt"))',
    ),
    "lowering: a quotient towards zero": (
        f"{LOWERING}/comparisons",
        "emit(arith.FloorDivSIOp(inner, by))",
        "emit(arith.DivSIOp(inner, by))",
    ),
    "lowering: a remainder by other bits": (
        f"{LOWERING}/comparisons",
        "arith.AndIOp(inner, number(divisor - 1, type, emit))",
        "arith.AndIOp(inner, number(divisor, type, emit))",
    ),
    "lowering: rows before a range are multiplied": (
        f"{LOWERING}/bounded",
        "begins=[*begun, *([] if begins is None else [(bounds.row, begins)])],",
        "begins=begun,",
    ),
    "lowering: rows behind a range are multiplied": (
        f"{LOWERING}/bounded",
        "[*kept, (bounds.row, ends)],",
        "[*kept, (bounds.row, lowering.size(bounds.row))],",
    ),
    "lowering: the rows of the first range for all": (
        f"{LOWERING}/bounded",
        "cuda.LoadOp(pending.buffer, pending.offsets, type",
        "cuda.LoadOp(pending.buffer, [lowering.index(0)] * len(axes), type",
    ),
    "merge-depths: a range ends with the first piece of its last index": (
        "passes/products/kept",
        "Linear({whole: -1}).plus(rest, count).plus(ONE, count - 1)",
        "Linear({whole: -1}).plus(rest, count)",
    ),
    "lowering: what lies behind a length is multiplied": (
        f"{LOWERING}/transfers",
        "lowering.bounds(axes, is_multiplied_with_absent)",
        "lowering.bounds(axes)",
    ),
    "lowering: a length is one too long": (
        f"{LOWERING}/runs",
        "        stop = None if self._is_for_others(fed[1]) else end",
        "        stop = self.emit(arith.AddiOp(end, self._index(1)))",
    ),
    "lowering: what lies before a start is multiplied": (
        f"{LOWERING}/transfers",
        "lowering.beginnings(axes, is_multiplied_with_absent)",
        "()",
    ),
    "lowering: a start is one too early": (
        f"{LOWERING}/runs",
        "or self._begins_a_piece(fed[0]) else lowest",
        "or self._begins_a_piece(fed[0]) else self.emit(arith.SubiOp(lowest, self._index(1)))",
    ),
    "lowering: the border behind begins with its piece": (
        f"{LOWERING}/runs",
        "self._after(since, until, end, begin, stop)",
        "self._after(since, until, end, None, stop)",
    ),
    "lowering: nobody asks what a condition leaves of an axis that is held": (
        f"{LOWERING}/held",
        "            held[value, axis] = begin",
        "            _ = begin",
    ),
    "lowering: an axis that is held ends with its array": (
        f"{LOWERING}/held",
        "arith.MinSIOp(stop, piece.end)]",
        "arith.MaxSIOp(stop, piece.end)]",
    ),
    "lowering: the border is not tested": (
        f"{LOWERING}/runs",
        'Run(self.stream.border, until, end, False, begin, stop, "the border',
        'Run(self.stream.step, until, end, False, begin, stop, "the border',
    ),
    "lowering: whole pieces end a piece late": (
        f"{LOWERING}/runs",
        "last = self._down(self._smaller(high, end))",
        "last = self._up(self._smaller(high, end))",
    ),
    # Pipelining.
    "pipelining: reads the stage that is filled": (
        "passes/loops/staged_copies",
        "cuda.StageOp(copy.tile, stage.results[0])",
        "cuda.StageOp(copy.tile, turn.results[0])",
    ),
    "pipelining: waits for too little": (
        "passes/loops/staged_copies",
        "[turn, count, stage, cuda.WaitOp(self.stages - 2),",
        "[turn, count, stage, cuda.WaitOp(self.stages - 1),",
    ),
    "pipelining: no barrier after the wait": (
        "passes/loops/staged_copies",
        "cuda.WaitOp(self.stages - 2), cuda.BarrierOp(), *ahead]",
        "cuda.WaitOp(self.stages - 2), *ahead]",
    ),
    "pipelining: asks for the piece that it has": (
        "passes/loops/staged_copies",
        "turns * step_of(self.loop)",
        "(turns - 1) * step_of(self.loop)",
    ),
    "pipelining: no stage of its own": ("pipelining", "tile.stages = IntAttr(stages)", "tile.stages = IntAttr(1)"),
    "pipelining: asks for what is behind the end": ("passes/loops/ahead", 'loop.ub, "ult")', 'loop.ub, "ule")'),
    "pipelining: asks in place for the tile that is read": (
        "passes/loops/staged_copies",
        "self._ask_in_place(self.phases[number - 1],",
        "self._ask_in_place(self.phases[number],",
    ),
    "pipelining: begins with nothing": (
        "passes/loops/load_ahead",
        "arith.CmpiOp(loop.lb, loop.ub,",
        "arith.CmpiOp(loop.ub, loop.ub,",
    ),
    "pipelining: loads the piece that it has": (
        "passes/loops/load_ahead",
        "load, loop, later[0]",
        "load, loop, body.args[0]",
    ),
    "pipelining: hands on what it had": ("passes/loops/load_ahead", "on.append(branch.results[0])", "on.append(piece)"),
    "pipelining: copies go past the end of rows": (
        "passes/loops/without_products",
        "load.offsets, tile, bounds, begins=begins",
        "load.offsets, tile, (), begins=begins",
    ),
    "pipelining: arrays share a tile": (
        "passes/loops/without_products",
        "return load.source, _tile_type(load)",
        "return load.offsets[-1], _tile_type(load)",
    ),
    # Roles.
    "roles: consumers do not wait": (
        "passes/warps/consumers",
        "            target.add_op(cuda.AwaitOp(ring, turn, ring.owner.needs_fence))\n",
        "",
    ),
    "roles: consumers give nothing back": (
        "passes/warps/consumers",
        "target.add_op(cuda.ReleaseOp(ring, given_back[0]))",
        "pass",
    ),
    "roles: the producer waits for nobody": (
        "passes/warps/producer",
        "[cuda.AcquireOp(ring, turn), cuda.ExpectOp(",
        "[cuda.ExpectOp(",
    ),
    "roles: copies begin with their piece": (
        "passes/warps/producer",
        "after = None if begin is None else mapping[begin]",
        "after = None",
    ),
    "roles: the producer expects half": ("passes/warps/producer", "turn, load.bytes)", "turn, load.bytes // 2)"),
    "roles: every step of a kept operand is the first": (
        "compiler/printer/matrices",
        'first = times(pair.variable, 2 * chunk) if pair.mode.size > 1 else "0"',
        'first = "0"',
    ),
    "roles: a product starts anew in each turn": (
        "passes/warps/consumers",
        "accumulator = None if fresh else mapping[op.accumulator]",
        "accumulator = None",
    ),
    "roles: the second loop counts from 0": (
        "passes/warps/specialise",
        "                    taken[copy.tile].append(self.common[op.ub])",
        "                    pass",
    ),
    "roles: a loop too short by one": (
        "passes/loops/turns",
        "before.append(turns := arith.CeilDivUIOp(distance, loop.step))",
        "before.append(turns := arith.DivUIOp(distance, loop.step))",
    ),
    # Products delayed by a turn.
    "delay: the piece of this turn": (
        "passes/loops/delay",
        "previous = arith.SubiOp(block.args[0], what.loop.step)",
        "previous = arith.AddiOp(block.args[0], what.loop.step)",
    ),
    "delay: without the last product": (
        "passes/loops/carry",
        "states[self.chain[-1].position] = self.parts[-1].last(target, mains[-1])",
        "self.parts[-1].last(target, mains[-1])",
    ),
    "delay: the left operand of the turn before": (
        "passes/loops/delay",
        "scf.YieldOp(*self._states(mapping), mapping[what.carried])",
        "scf.YieldOp(*self._states(mapping), block.args[-1])",
    ),
    "carry: a loop begins with its second turn": (
        "passes/loops/carry",
        "arith.SelectOp(has_begun.result, loop.lb, second.result)",
        "arith.SelectOp(has_begun.result, second.result, second.result)",
    ),
    "carry: the last product of the first loop": (
        "passes/loops/carry",
        "self.parts[-1].last(target, mains[-1])",
        "self.parts[0].last(target, mains[-1])",
    ),
    "delay: waits for both": ("passes/loops/delay", "clone.pending.data + 1", "clone.pending.data + 2"),
    "running on: a turn gives back what it reads itself": (
        "passes/loops/in_flight",
        "    _release(found, block, before.result)\n",
        "    _release(found, block, position)\n",
    ),
    "running on: two turns are under way": (
        "passes/loops/in_flight",
        "cuda.WarpgroupDrainOp(len(found.products))",
        "cuda.WarpgroupDrainOp(2 * len(found.products))",
    ),
    # Results in boxes.
    "tensor stores: no fence": (
        "cuda_store_tensors",
        "    Rewriter.insert_op(cuda.TensorFenceOp(), InsertPoint.before(op))\n",
        "    pass\n",
    ),
    "tensor stores: nobody waits for the copy": (
        "cuda_store_tensors",
        "Rewriter.replace_op(op, [store, cuda.TensorWaitOp()], [])",
        "Rewriter.replace_op(op, [store], [])",
    ),
    # Persistent grids.
    "persist: all pieces begin with turn 0": (
        "passes/grids/persistent",
        "sum = arith.AddiOp(op.turn, done[self.counted[op.ring]])",
        "sum = arith.AddiOp(op.turn, op.turn)",
    ),
    "persist: stages begin anew": (
        "passes/grids/persistent",
        "sum = arith.AddiOp(op.index, done[self.counted[self.rings[op.tile]]])",
        "sum = arith.AddiOp(op.index, count.result)",
    ),
    "persist: every part is the first": (
        "passes/grids/persistent",
        "(part, self.parts) if self.parts > 1 else None",
        "(0, self.parts) if self.parts > 1 else None",
    ),
    "persist: the next piece lies on what leaves": (
        "passes/grids/persistent",
        "                cuda.TensorWaitOp(),\n                cuda.BarrierOp(),\n                written,",
        "                cuda.BarrierOp(),\n                written,",
    ),
    "persist: skips a piece": (
        "passes/grids/persistent",
        "loop = scf.ForOp(walk.begin, walk.end, walk.step,",
        "loop = scf.ForOp(walk.begin, walk.step, walk.step,",
    ),
    "persist: rounds overlap": ("passes/grids/serpentine", "at.product(round, blocks)", "at.product(round, one)"),
    # Pieces that overlap.
    # What comes early to one place: `test_overlap_pieces.py`.
    "overlap: both places are one": (
        "passes/grids/two_places",
        'numbers.rest(first.turn, numbers.constant(PLACES), "stage")',
        "numbers.constant(0)",
    ),
    "overlap: a ring of one turn for two places": (
        "passes/grids/two_places",
        "cuda.RingOp(0, ring.consumers.data, PLACES)",
        "cuda.RingOp(0, ring.consumers.data, 1)",
    ),
    "overlap: warpgroups meet for a share of another": (
        "compiler/printer/tensor_stores",
        'tile = add([tile, scaled("warpgroup", rows * op.boxes.span.data)])',
        "tile = add([tile])",
    ),
    "overlap: one thread waits for what each has sent": (
        "passes/grids/apart",
        "if isinstance(op, cuda.TensorStoreOp | cuda.TensorWaitOp):",
        "if isinstance(op, cuda.TensorStoreOp):",
    ),
    "overlap: warpgroups do not meet": (
        "compiler/printer/warpgroups",
        'self.writer.text.line(f"{numbered}({FIRST_OF_GROUP} + warpgroup, {WARPGROUP});")',
        "pass",
    ),
    # Grids of a block for each piece.
    "order: pieces are left out": (
        "cuda_order_blocks",
        "order.emit(Arithmetic.before(op), unit.result, grid.result, columns)",
        "order.emit(Arithmetic.before(op), columns, grid.result, columns)",
    ),
    # Clusters.
    "cluster: blocks bring together what each reads elsewhere": (
        "passes/grids/cluster_laws",
        "    if any(offset in depends for offset in load.offsets):",
        "    if False:",
    ),
    "cluster: a stage is free when one block has released it": (
        "cuda_cluster",
        "ring.blocks, load.multicast = IntAttr(members.blocks), UnitAttr()",
        "ring.blocks, load.multicast = IntAttr(1), UnitAttr()",
    ),
    "cluster: a block ends before others let go of its memory": (
        "cuda_cluster",
        "block.add_ops([cuda.ClusterArriveOp(), cuda.ClusterWaitOp()])",
        "block.add_ops([])",
    ),
    "cluster: launched where it does not divide the grid": (
        "passes/grids/beside",
        'arith.CmpiOp(rests[0], zero.result, "eq")',
        'arith.CmpiOp(rests[0], zero.result, "ne")',
    ),
    "cluster: each block brings all of a tile": (
        "cuda_cluster",
        "type = cuda.TensorMapType(share, old.buffer, tuple(old.order))",
        "type = cuda.TensorMapType(old.shape, old.buffer, tuple(old.order))",
    ),
    "cluster: the pieces of an outer coordinate are not numbered anew": (
        "cuda_cluster",
        "        if not is_numbered:\n",
        "        if False:\n",
    ),
    "cluster: all its blocks take the piece of the first": (
        "passes/grids/renumber",
        "own = arith.AddiOp(first.result, digit)",
        "own = arith.AddiOp(first.result, blocks.result)",
    ),
    "cluster: coordinates of clusters are those of pieces": (
        "passes/grids/renumber",
        "first = arith.MuliOp(place.value, blocks.result)",
        "first = arith.AddiOp(place.value, blocks.result)",
    ),
    # Turns of warpgroups.
    "ping-pong: a turn is not given on": (
        "passes/warps/ping_pong",
        "            _after(run[-1], cuda.OrderArriveOp())\n",
        "",
    ),
    "ping-pong: products begin before their turn": (
        "passes/warps/ping_pong",
        "            _before(run[0], cuda.OrderWaitOp())\n",
        "",
    ),
    "ping-pong: nobody has the first turn": ("passes/warps/ping_pong", "    _before(first, cuda.OrderBeginOp())\n", ""),
    "ping-pong: nobody takes the last turn back": (
        "passes/warps/ping_pong",
        "    _after(last, cuda.OrderEndOp())\n",
        "",
    ),
    "ping-pong: a warpgroup waits for itself": (
        "compiler/printer/order",
        'self._meet("_arrive", self.next)',
        'self._meet("_arrive", self.mine)',
    ),
    # Powers from the maximum so far.
    "speculation: the limit is too large": ("passes/speculation/law", "2.0 ** round(slack * slope)", "2.0**100"),
    "speculation: what may not lag hides its powers": ("passes/speculation/rewrite", "number(-inf)", "number(inf)"),
    "speculation: a sum forgets what it begins with": (
        "passes/speculation/rewrite",
        "total(Leaf(op.init), Leaf(made[value]))",
        "Leaf(made[value])",
    ),
    "speculation: a maximum that stays moves": (
        "passes/speculation/rewrite",
        "FloatAttr(1.0, f32)",
        "FloatAttr(0.0, f32)",
    ),
    "speculation: sums are not repaired by what the maximum moved": (
        "passes/speculation/rewrite",
        "*((mapping | carried)[value] for value in self.results)",
        "*(self.found.before if value in self.ones else (mapping | carried)[value] for value in self.results)",
    ),
    "speculation: offsets of the new maximum do not go on": (
        "passes/speculation/rewrite",
        "scf.YieldOp(*end.operands, *branch.results[-len(self.found.carried) :])",
        "scf.YieldOp(*end.operands, *loop.body.block.args[-len(self.found.carried) :])",
    ),
    "speculation: begins with another state": (
        "passes/speculation/rewrite",
        "{self.found.kept: loop.iter_args[self.found.position]}",
        "{self.found.kept: next(each for i, each in enumerate(loop.iter_args)"
        " if each.type == self.found.kept.type and i != self.found.position)}",
    ),
    "speculation: another state stays": (
        "passes/speculation/rewrite",
        "stays = {found.kept: found.before,",
        "stays = {found.kept: next(each for each in body.args[1:]"
        " if each.type == found.before.type and each is not found.before),",
    ),
    "pairs: each turn reads the same array": (
        "compiler/printer/control_flow",
        "((arrays, others), (others, arrays))",
        "((arrays, others), (arrays, others))",
    ),
    "pairs: the one that is left over is left out": (
        "compiler/printer/control_flow",
        'block(f"if ({index} < {high})")',
        'block(f"if ({index} < 0)")',
    ),
    "pairs: what the last turn makes stays where it is": (
        "compiler/printer/control_flow",
        "({array}, {other}, {zero});",
        "({array}, {array}, {zero});",
    ),
    "votes: no number is none above": ("compiler/printer/votes", "!({each} <= {limit})", "({each} > {limit})"),
    "votes: each lane by itself": ("compiler/printer/votes", "{writer.call('any_lane')}({asked})", "({asked})"),
    "votes: all rows of a lane": ("compiler/printer/votes", '" || ".join(', '" && ".join('),
    # Subloops.
    "subloop: every piece is the first": (
        "compiler/printer/products",
        'steps = f"UNROLL for (int {variable} = {first}; {variable} < {first} + {piece}; {forth})"',
        'steps = f"UNROLL for (int {variable} = 0; {variable} < {piece}; {forth})"',
    ),
    "subloop: forgets the last piece": (
        "compiler/printer/products",
        'turns = f"UNROLL_1 for (int {first} = 0; {first} < {count}; {first} += {piece})"',
        'turns = f"UNROLL_1 for (int {first} = 0; {first} < {count - piece}; {first} += {piece})"',
    ),
    "subloop: its left operand in registers": (
        "compiler/lowering/products",
        "        or depth in lowering.plan.subloops\n        or lowering.offsets",
        "        or lowering.offsets",
    ),
    # Masks.
    "masks: a condition ends a position early": (
        f"{LOWERING}/intervals",
        "interval.ends.append(other.plus(Linear({}, 1)))",
        "interval.ends.append(other)",
    ),
    "masks: of two ends the last counts": (
        f"{LOWERING}/intervals",
        "_joined(lowering, inner.limit, end, arith.MinSIOp, layout)",
        "_joined(lowering, inner.limit, end, arith.MaxSIOp, layout)",
    ),
    "masks: what is left of a condition is forgotten": (
        f"{LOWERING}/conditions",
        "if kept is not None and rest == Both(()):",
        "if kept is not None:",
    ),
    "masks: a lane counts from the first place of all": (
        "compiler/printer/masks",
        "first = add([_start(writer, op, bound), *thread_terms(layout, op.axis.data)])",
        "first = _start(writer, op, bound)",
    ),
    "masks: the second word is the first": (
        "compiler/printer/masks",
        "bits = f\"{writer.call('bits_before')}<{word}, {digits}>\"",
        "bits = f\"{writer.call('bits_before')}<0, {digits}>\"",
    ),
    # Warpgroups that share columns.
    "across: all warpgroups take the first columns": (
        "compiler/printer/warpgroups",
        'return None if one else _Part(f"warpgroup % {groups}", ROWS), columns',
        'return None if one else _Part(f"warpgroup % {groups}", ROWS), None',
    ),
    "across: rows are those of another warpgroup": (
        "compiler/printer/warpgroups",
        'return None if one else _Part(f"warpgroup % {groups}", ROWS), columns',
        'return _Part("warpgroup", ROWS), columns',
    ),
    "across: columns are written where the first ones lie": (
        "compiler/printer/tensor_stores",
        "own = warp_place(layout, axes[1])",
        'own = "0"',
    ),
    # States that meet a matrix.
    "renames: elements stay where they were": (
        "compiler/lowering/renames",
        "result = lowering.emit(cuda.RenameOp(value, op.names))",
        "result = lowering.emit(cuda.RenameOp(value, dict(zip(op.names.values(), op.names, strict=True))))",
    ),
    "renames: all registers are the first": (
        "compiler/printer/renames",
        'element = writer.number(op.value, f"{writer.values[op.value]}{at}")',
        'element = writer.number(op.value, f"{writer.values[op.value]}[0]")',
    ),
    "barriers: what is read in one turn is written in the next": (
        "compiler/lowering/barriers",
        "return {base_of(op.destination)}, set()",
        "return set(), set()",
    ),
    # Widths.
    "coalescing: wider than what is side by side": (
        "passes/staging/widths",
        "widths = ladder(widest(access, max_bytes), format_bytes",
        "widths = ladder(16 // format_bytes(access.buffer_type), format_bytes",
    ),
    "coalescing: no array says how it is aligned": (
        "coalescing",
        "number for number, buffer in enumerate(asked.buffers) if buffer not in used",
        "number for number, buffer in enumerate(asked.buffers)",
    ),
}
