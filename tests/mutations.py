"""Deliberate mistakes in passes: a file, what stands in it, and what a mistake puts there.

Each is of a kind that a person makes: a rescale dropped, two operands swapped, a guard forgotten, an edge off by one."""

# ruff: noqa: E501

from __future__ import annotations

from mutated import Mutation

MUTATIONS: dict[str, Mutation] = {
    "machine: runs code of any architecture": (
        "set_machine",
        'fits = number == machine.capability if arch.endswith("a") else number <= machine.capability',
        "fits = True",
    ),
    "machine: newer code runs on older machines": ("set_machine", "else number <= machine.capability", "else True"),
    "machine: a file in the place of a name": (
        "set_machine",
        "if self.machine is not None and self.file is not None:",
        "if False:",
    ),
    # Laws put in the place of their names.
    "expand: weaves nothing": (
        "diagram_expand_laws",
        "axes = self._order({*self._names(old.type), *weaved}",
        "axes = self._order({*self._names(old.type)}",
    ),
    "expand: reduces another axis": (
        "diagram_expand_laws",
        "self.axis.get(axis, axis)) for axis in new.over_axes",
        "axis) for axis in new.over_axes",
    ),
    # Choices by positions that become conditions.
    "masks: every row has an element": (
        "passes/masks/identities",
        "if not isinstance(op, ScanOp) and self._is_in_every_row(op, ",
        "if True or self._is_in_every_row(op, ",
    ),
    "masks: any number is an identity": (
        "passes/masks/identities",
        "wrong = finite - identity or any_ - identity - NAN",
        "wrong = frozenset()",
    ),
    "masks: only NaN is none": (
        "passes/masks/identities",
        "wrong = finite - identity or any_ - identity - NAN",
        "wrong = finite & NAN",
    ),
    "masks: what is returned may be absent": (
        "passes/masks/identities",
        'self._fail_all(given, "it is returned"',
        'self._fail_all({}, "it is returned"',
    ),
    "masks: whatever is chosen is kept": (
        "passes/masks/choices",
        "told = asked(condition, negated=kept is no)",
        "told = asked(condition)",
    ),
    "masks: a scale is forgotten": (
        "diagram_raise_masks",
        "kept = substitute(chooser.where((), choices), ",
        "kept = substitute(choices[0].kept, ",
    ),
    "masks: later is not before": ("passes/masks/asked", '"<=": ">", ">": "<=",', '"<=": ">", ">": "<",'),
    "masks: both are one": (
        "passes/masks/asked",
        "both = (expression.kind is arith.AndIOp) != negated",
        "both = expression.kind is arith.AndIOp",
    ),
    "masks: a shift by one more": (
        "passes/masks/asked",
        "return quotient_of(form, 1 << number)",
        "return quotient_of(form, 2 << number)",
    ),
    "merge-axes: a sum of maxima is one over all": (
        "passes/axes/joins",
        "return inner if kind == op.kind.data and len(formats) == 1",
        "return inner if len(formats) == 1",
    ),
    "merge-free-axes: a condition keeps its axes": (
        "passes/axes/merge",
        "if isinstance(op, WhereOp) and axes[0] in axes_of(op.result.type):",
        "if False:",
    ),
    "merge-free-axes: a batch is free": (
        "passes/products/apart",
        "if axis in axes_of(other.type) or axis in op.over_axes:",
        "if axis in op.over_axes:",
    ),
    "merge-depths: the pieces of one index for all": (
        "passes/products/pieces",
        "self.outer: Linear({quotient(self.whole, self.count): 1}),",
        "self.outer: Linear({}),",
    ),
    "read: one position for each block": (
        "dialects/diagram/read",
        "return [(along, size) for along in forms for size in whole",
        "return [(along, 1) for along in forms for size in whole",
    ),
    "merge-depths: a piece counts for all": (
        "passes/products/pieces",
        "self.number: remainder(self.whole, self.count),",
        "self.number: Linear({}),",
    ),
    "merge-depths: a condition speaks of the first index alone": (
        "passes/products/pieces",
        "value: self._read(value) if self.outer in",
        "value: self._read(value) if self.inner in",
    ),
    "repeat operands: rows of no range are summed": (
        "passes/products/repeated",
        "op.operands[each.index] = rows.result",
        "op.operands[each.index] = read.result",
    ),
    "merge-reduced-axes: a quotient is a remainder": (
        "passes/products/digits",
        "if index == 0:",
        "if index == len(sizes):",
    ),
    "merge-reduced-axes: the inner axis goes by the outer one": (
        "passes/products/reduced_as_one",
        "places = dict(zip(self.each.axes, positions_along(self.whole, self.each.sizes), strict=True))",
        "places = dict.fromkeys(self.each.axes, positions_along(self.whole, self.each.sizes)[0])",
    ),
    "tile windows: what lies outside is there": (
        "passes/products/tiled_windows",
        "if each.row is not None and each.before > 0:",
        "if each.row is not None and each.before > each.keys:",
    ),
    "tile windows: a tile reaches what its rows are": (
        "passes/products/windows",
        "else tile[self.row] + self.before + self.after",
        "else tile[self.row] + self.before",
    ),
    "copy operands: what lies apart is one axis": (
        "passes/products/copied",
        "axes.index(second) == axes.index(first) + 1",
        "bool(axes)",
    ),
    "distribute: what is subtracted is added": (
        "passes/products/distributed",
        "return Term(self.expression, not self.is_subtracted)",
        "return Term(self.expression, self.is_subtracted)",
    ),
    "distribute: a term is forgotten": (
        "passes/products/distributed",
        "for value, is_subtracted in rest:",
        "for value, is_subtracted in rest[1:]:",
    ),
    "chunk recurrences: what is subtracted is added": (
        "passes/recurrences/linear",
        "else difference(left, right)",
        "else total(left, right)",
    ),
    "chunk recurrences: what is divided stays": (
        "passes/recurrences/linear",
        "else quotient(parts[0], self._outside(node.operands[1]))",
        "else parts[0]",
    ),
    "chunk recurrences: no chunk knows those before": (
        "passes/recurrences/bodies",
        "total(Leaf(moved.result), Leaf(part))",
        "Leaf(part)",
    ),
    "chunk recurrences: positions that are not there count": (
        "passes/recurrences/bodies",
        "select(is_there, Leaf(after), Leaf(before))",
        "Leaf(after)",
    ),
    "chunk recurrences: all positions are there": (
        "passes/recurrences/chunked",
        'compare(at, "<", end)',
        'compare(at, "<=", end)',
    ),
    "chunk recurrences: all chunks begin with the same": (
        "passes/recurrences/chunked",
        "block.add_op(YieldOp(*after, *before))",
        "block.add_op(YieldOp(*after, *after))",
    ),
    "split depths: each part begins at the first position": (
        "passes/products/split",
        "place = Linear({axis: 1}, part.begin)",
        "place = Linear({axis: 1}, 0)",
    ),
    "split depths: what nobody reads is forgotten": (
        "passes/products/split",
        "yield Part(at, size - at)",
        "pass",
    ),
    "raise scans: the element itself counts": (
        "passes/products/scanned",
        "return sign < 0, condition.form.constant < 0",
        "return sign < 0, False",
    ),
    "raise scatters: a condition beside is forgotten": (
        "passes/products/scattered",
        "    if each.rest:",
        "    if False:",
    ),
    "raise scatters: what a form subtracts is added": (
        "passes/products/scattered",
        "return axis, rest.times(-form.terms[axis])",
        "return axis, rest",
    ),
    "raise scatters: what says nothing of where is not summed": (
        "passes/products/scattered",
        'ReduceOp("add", value, alone,',
        'ReduceOp("max", value, alone,',
    ),
    "scans: a piece begins behind itself": (
        "passes/streams/stream",
        "self._scan(scope, op, step.before)",
        "self._scan(scope, op, step.after)",
    ),
    "scans: what a step adds is taken off nothing": (
        "passes/streams/moving",
        "Change(Leaf(scan.total, ADDED), number(0))",
        "Change(number(0), number(0))",
    ),
    "orders: a place in a part is one in all": (
        "passes/orders/parts",
        "inside = arith.AddiOp(begin, place).result",
        "inside = place",
    ),
    "orders: zeros past the end are found": (
        "passes/orders/parts",
        "if not self._is_padded:",
        "if self.length:",
    ),
    "orders: parts overlap": (
        "passes/orders/parts",
        "return Linear({self.part: self.length, self.inner: 1})",
        "return Linear({self.part: self.length - 1, self.inner: 1})",
    ),
    "bubble: a position is the first": (
        "passes/reads/bubble",
        "number = FillOp(IntegerAttr(form.constant, i32), type)",
        "number = FillOp(IntegerAttr(0, i32), type)",
    ),
    "bubble: a condition is asked elsewhere": (
        "passes/reads/bubble",
        "placed(each.text.data, moved)",
        "placed(each.text.data, dict.fromkeys(moved, Linear({})))",
    ),
    "raise swaps: a half is where it is": (
        "passes/swaps/write",
        "{at: own, 1 - at: other}",
        "{at: own, 1 - at: own}",
    ),
    "raise swaps: the other branch": (
        "passes/swaps/write",
        "known[where][id(yes)], known[1 - where][id(no)]",
        "known[1 - where][id(yes)], known[where][id(no)]",
    ),
    "raise swaps: there are two blocks": (
        "passes/swaps/found",
        "block = at[0]",
        "block = size // 2",
    ),
    "raise swaps: what is alone begins again in no place": (
        "passes/swaps/joined",
        'place = f"{self.whole} % {span}"',
        'place = f"{self.whole} // {span}"',
    ),
    "raise swaps: blocks are as long as they were": (
        "passes/axes/merge",
        "op.length * prod(sizes_of(op.result.type)[each] for each in inside)",
        "op.length * prod(sizes_of(op.result.type)[each] for each in inside[:0])",
    ),
    "hoist: swaps the sides of a maximum": (
        "passes/factors/maxima",
        "outer = substitute(expression, lambda leaf: Leaf(inner.result) if leaf == source else leaf)",
        "outer = Leaf(inner.result)",
    ),
    # Products of products in another order, and in chunks.
    "reassociate: the chunk of a row counts twice": (
        "passes/products/conditions",
        "return f\"{summed} {'<' if self.sign > 0 else '>'} {row}\"",
        "return f\"{summed} {'<=' if self.sign > 0 else '>='} {row}\"",
    ),
    "reassociate: forgets the chunk of a row": (
        "passes/products/chunked_products",
        "total(Leaf(before), Leaf(same))",
        "Leaf(before)",
    ),
    "reassociate: takes later positions for earlier ones": (
        "passes/products/conditions",
        "return Order(row, summed, sign, condition.form.constant < 0)",
        "return Order(row, summed, 1, condition.form.constant < 0)",
    ),
    "reassociate: the same position always counts": (
        "passes/products/conditions",
        "return Order(row, summed, sign, condition.form.constant < 0)",
        "return Order(row, summed, sign, False)",
    ),
    "reassociate: forgets what weighs the sum": (
        "passes/products/orders",
        "writer.weighed(chain.summed, weights.weight), weights.scale",
        "list(chain.summed), weights.scale",
    ),
    "reassociate: scales no rows": (
        "passes/products/chunked_products",
        "        return writer.scaled(result, scale)",
        "        return result",
    ),
    "reassociate: multiplies by a divisor": (
        "passes/products/sums",
        "*(quotient(number(1), divisor) for divisor in below)",
        "*below",
    ),
    "reassociate: zeros past the end are numbers": (
        "passes/products/chunked_products",
        "if found is not read or is_mapped(value) else found",
        "if False else found",
    ),
    "reassociate: a prefix forgets its own chunk": (
        "passes/products/chunked_prefixes",
        "total(Leaf(writer.scaled(states, scale)), Leaf(same))",
        "Leaf(writer.scaled(states, scale))",
    ),
    "reassociate: a prefix scales its own chunk alone": (
        "passes/products/chunked_prefixes",
        "Leaf(writer.scaled(states, scale))",
        "Leaf(states)",
    ),
    "reassociate: what is made past the end counts in its chunk": (
        "passes/products/chunked_prefixes",
        "return self.inside.there(value, writer) if made_in_chunks else value",
        "return value",
    ),
    "reassociate: a prefix has as many rows as it sums": (
        "passes/products/chunked_prefixes",
        "        if rows.count != DYNAMIC:",
        "        if True:",
    ),
    "reassociate: any axis that is read is one of rows": (
        "passes/products/chunked_prefixes",
        "return place.get(self.cut.order.row) == Linear({self.cut.order.summed: 1}, 0)",
        "return True",
    ),
    "reassociate: a short last chunk is left out": (
        "dialects/diagram/place",
        "return max(-((reach(rest, others) - length) // form.terms[axis]) + 1, 0)",
        "return max((length - reach(rest, others)) // form.terms[axis] + 1, 0)",
    ),
    # Factors moved past sums and maxima.
    "hoist: multiplies by the divisor": (
        "passes/factors/scaled",
        "            scaled = quotient(scaled, divisor)",
        "            scaled = product(scaled, divisor)",
    ),
    "hoist: drops the factor": (
        "passes/factors/scaled",
        "        scaled = product(scaled, factor)\n",
        "        pass\n",
    ),
    "hoist: drops the divisor": (
        "passes/factors/scaled",
        "            scaled = quotient(scaled, divisor)\n",
        "            pass\n",
    ),
    "hoist: forgets that an axis may be empty": (
        "diagram_hoist_factors",
        "for axis in sum.over_axes if may_be_empty(axis, operands)",
        "for axis in sum.over_axes if False",
    ),
    "hoist: numbers of any sign past a maximum": (
        "passes/expressions/forms",
        "return least(expression) >= LEAST",
        "return True",
    ),
    "powers: keeps the factor in the sum": ("passes/expressions/powers", "raised, 1 / factor)", "raised, 1.0)"),
    "hoist: negative scales past a maximum": (
        "passes/factors/maxima",
        "    if _is_scale(right):",
        "    if True:",
    ),
    "hoist: swaps numerator and divisor of a quotient": (
        "passes/factors/split",
        "[*left.above, *right.below], [*left.below, *right.above]",
        "[*left.above, *right.above], [*left.below, *right.below]",
    ),
    "common: takes unlike bodies for equal": (
        "_functions",
        "lines.append((op.name, operands, frozenset((op.properties | op.attributes).items())))",
        "lines.append((op.name, operands))",
    ),
    "common: forgets the operands": (
        "_functions",
        "return (op.name, tuple(op.operands), properties, tuple(op.result_types), inner)",
        "return (op.name, properties, tuple(op.result_types), inner)",
    ),
    "common: sorts operands of a body": (
        "_functions",
        "operands = tuple(number[operand] for operand in op.operands)",
        "operands = tuple(sorted(number[operand] for operand in op.operands))",
    ),
    # Cascades.
    "cascade: no repair": ("passes/streams/stages", "return Verdict(last, followed)", "return Verdict(last)"),
    "cascade: the repair upside down": (
        "passes/streams/moving",
        "above, below = product(above, change.above), product(below, change.below)",
        "above, below = product(above, change.below), product(below, change.above)",
    ),
    "cascade: a subtrahend as a summand": (
        "passes/streams/moving",
        "return summed(left, Change(right.below, right.above, right.fragile))",
        "return summed(left, right)",
    ),
    "cascade: keeps the sign of what is negated": (
        "passes/streams/moving",
        "return Change(shift.below, shift.above, shift.fragile)",
        "return shift",
    ),
    "cascade: adds where it should multiply": (
        "passes/streams/repairs",
        "yield product, _factor_at(",
        "yield total, _factor_at(",
    ),
    "cascade: forgets a fixed scale": (
        "passes/streams/moving",
        "return Change(scale(shift.above, by), scale(shift.below, by), shift.fragile)",
        "return shift",
    ),
    "cascade: before and after alike": (
        "passes/streams/moving",
        "return Leaf(leaf.value, BEFORE) if leaf.value in self.running else leaf",
        "return leaf",
    ),
    "cascade: nothing is fragile": (
        "passes/streams/stages",
        "guarded = frozenset(r for r in moved if r in repair.fragile or (r in self.guarded and r in repair.vanishing))",
        "guarded = frozenset[SSAValue]()",
    ),
    "stages: a piece before its state is finished": (
        "passes/streams/stages",
        "self.stage[result] = finished + 1 if self.is_piece(result) else finished",
        "self.stage[result] = max(finished, 0) if self.is_piece(result) else finished",
    ),
    "stages: a refused reduction in the same stream": (
        "passes/streams/stages",
        "return Verdict(last + 1, followed)",
        "return Verdict(last, followed)",
    ),
    # Streams.
    "streams: starts a maximum at zero": (
        "passes/expressions/reductions",
        '"max": -float("inf"), "min": float("inf")}',
        '"max": 0.0, "min": float("inf")}',
    ),
    "streams: starts a sum at one": (
        "passes/expressions/reductions",
        '_OF_FLOATS = {"add": 0.0',
        '_OF_FLOATS = {"add": 1.0',
    ),
    "streams: forgets what was so far": (
        "passes/streams/stream",
        "new = rebuilt(op, operands, self.before[state].type, into)",
        "new = rebuilt(op, operands, self.before[state].type, None)",
    ),
    "lagging: what is told from it may leave": (
        "passes/streams/lagging",
        "if not self.of(value).stays:",
        "if False:",
    ),
    "lagging: a maximum with other numbers stays": (
        "passes/streams/ways",
        "return Way(shifted=Moves({Move(name_of(node), least, most): 1.0}))",
        "return STAYS",
    ),
    "lagging: a maximum with other numbers goes along": (
        "passes/streams/ways",
        "return Way(shifted=Moves({Move(name_of(node), least, most): 1.0}))",
        "return left if left.shifted else right",
    ),
    "lagging: all maxima with other numbers go alike": (
        "passes/streams/ways",
        "Move(name_of(node), least, most)",
        "Move(0, least, most)",
    ),
    "lagging: any test says that there are elements": (
        "passes/streams/lagging",
        "return self._present is not None and name_of(test) == self._present",
        "return True",
    ),
    "join sums: begins with what is not scaled": (
        "hierarchy_join_sums",
        "if isinstance(found.first, Leaf):\n        return found.begun.result",
        "if True:\n        return found.begun.result",
    ),
    "join sums: a term counts twice": ("passes/products/added", "if part is addition:", "if False:"),
    "join sums: the rest of a sum is forgotten": (
        "passes/products/added",
        "(rest,) = [operand for operand in addition.operands if operand is not term]",
        "rest = term",
    ),
    "join sums: steps add one of several products": (
        "passes/streams/stream",
        "into = self.before[state] if sum_so_far is None else self.scope.values[sum_so_far]",
        "into = self.before[state]",
    ),
    "join sums: a stream begins with nothing": (
        "passes/streams/stream",
        "if (beginning := self.plan.beginning_of(state)) is not None:\n            return known[beginning]",
        "",
    ),
    "streams: repairs nothing": (
        "passes/streams/stream",
        "into = self.before[state] if repair is None else self.repaired(state, repair, self.before)",
        "into = self.before[state]",
    ),
    "streams: the state after for the one before": (
        "passes/streams/repairs",
        "here: Expression = Leaf(moments.before(leaf.value))",
        "here: Expression = Leaf(moments.after(leaf.value))",
    ),
    "streams: yields the states in another order": (
        "passes/streams/stream",
        "self.end(block, [step.after[state] for state in states])",
        "self.end(block, [step.after[state] for state in reversed(states)])",
    ),
    "streams: a row of nothing but -inf sums up to nothing": (
        "passes/streams/undefined",
        "if guards := tuple(dict.fromkeys(_guards_of(plan, state, following))):",
        "if (guards := ()):",
    ),
    "streams: a row without an element is no number": (
        "passes/streams/undefined",
        "    for each in there:\n        undefined",
        "    for each in ():\n        undefined",
    ),
    "streams: what a condition leaves ends one late": (
        "passes/streams/undefined",
        'compare(first, "<=", last)',
        'compare(first, "<=", Node(arith.AddiOp, (last, number(1, type)), type))',
    ),
    "split: parts that all have no number add nothing": (
        "passes/streams/splits",
        "told(Leaf(merged), neutral, list",
        "told(Leaf(merged), [], list",
    ),
    "streams: no finite number for a neutral state": (
        "passes/streams/stream",
        "        if state not in self.plan.guarded:\n            return",
        "        if True:\n            return",
    ),
    "streams: a guard on what was not neutral": (
        "passes/streams/repairs",
        "finite = select(is_neutral(state, leaf), number(stand_in_of(state), leaf.type), leaf)",
        "finite = select(is_neutral(state, leaf), leaf, number(stand_in_of(state), leaf.type))",
    ),
    "streams: what a sum was added to is lost": (
        "passes/expressions/reductions",
        "combined = combine(kind_of(op.result), convert(Leaf(op.init), format), Leaf(alone))",
        "combined = Leaf(alone)",
    ),
    "streams: all are sums": (
        "passes/expressions/reductions",
        'return owner.kind.data if isinstance(owner, ReduceOp | ScanOp) else "add"',
        'return "add"',
    ),
    "recurrences: states leave a position as they came": (
        "passes/streams/positions",
        "block.add_op(YieldOp(*after))",
        "block.add_op(YieldOp(*block.args))",
    ),
    "recurrences: states begin with each other": (
        "passes/streams/positions",
        "for value in self.op.states]",
        "for value in reversed(self.op.states)]",
    ),
    "recurrences: each result is the first": (
        "passes/streams/positions",
        "self._save(block, value, output)",
        "self._save(block, value, outputs[0])",
    ),
    "recurrences: always from the first position": (
        "passes/streams/positions",
        "stream.attributes[REVERSE] = UnitAttr()",
        "pass",
    ),
    "recurrences: factors are added": (
        "passes/_recurrences",
        "else arith.MulfOp(left, right)",
        "else arith.AddfOp(left, right)",
    ),
    "recurrences: what is widened later is what came before it": (
        "passes/_recurrences",
        "return values[owner.operand] if isinstance(owner, CastOp)",
        "return [*values.values()][-1] if isinstance(owner, CastOp)",
    ),
    "renames: groups cut what has another name": (
        "passes/kernels/roles",
        "if isinstance(op, RenameOp) and axis in op.meeting_axes:",
        "if isinstance(op, RenameOp) and axis in op.names.values():",
    ),
    "renames: the reference names no axis": (
        "runtime/interpreter/functions",
        "Array(tuple(names.get(axis, axis) for axis in operand.axes), operand.numbers)",
        "Array(tuple(names.get(axis, axis) for axis in reversed(operand.axes)), operand.numbers)",
    ),
    "recurrences: what is made of one state is made of another": (
        "passes/_recurrences",
        "values: Values = dict(zip(self.op.body.block.args, given, strict=True))",
        "values: Values = dict(zip(self.op.body.block.args, [given[len(self.op.states) - 1], *given[1:]], strict=True))",
    ),
    "expand: saves in the place of another result": (
        "hierarchy_expand_streams",
        "zip(terminator.operands, block.args[len(given) :], strict=True)",
        "zip(terminator.operands, reversed(block.args[len(given) :]), strict=True)",
    ),
    "expand: does not save what is late": (
        "hierarchy_expand_streams",
        "            if not self.plan.is_piece(value):\n                self.leave(scope, value)",
        "            if False:\n                self.leave(scope, value)",
    ),
    # Conditions.
    "visits: stops one early": (
        "passes/streams/limits",
        "value, constant = self._piece(term).end, constant - factor",
        "value, constant = self._piece(term).end, constant - 2 * factor",
    ),
    "visits: every piece without its test": (
        "passes/streams/visits",
        "    return Visits(some, every, frozenset",
        "    return Visits(some, some, frozenset",
    ),
    "selections: a state needs what any of its conditions leaves": (
        "passes/streams/selections",
        "    condition = Both(parts[0]) if len(parts) == 1 else",
        "    condition = Either(()) if len(parts) == 1 else",
    ),
    "conditions: compared the other way round": (
        "passes/expressions/conditions",
        '            return f"{_side(form, -1, names)} <= {_side(form, 1, names)}"',
        '            return f"{_side(form, 1, names)} <= {_side(form, -1, names)}"',
    ),
    "visits: least for most": (
        "passes/streams/limits",
        'ReduceOp("max" if largest else "min", value',
        'ReduceOp("min" if largest else "max", value',
    ),
    "searches: what is between the first and the last holds": (
        "passes/streams/searches",
        'add(arith.SubiOp(whole_end, whole_first)), count, "eq"',
        'add(arith.SubiOp(whole_end, whole_first)), count, "sge"',
    ),
    "searches: the last position is left out": (
        "passes/streams/searches",
        "one = add(arith.ConstantOp.from_int_and_width(1, IndexType()))",
        "one = add(arith.ConstantOp.from_int_and_width(0, IndexType()))",
    ),
    "searches: least for most": ("passes/streams/searches", "factor * sign > 0", "factor * sign < 0"),
    "ranges: one past the last is the last": (
        "passes/conditions/found",
        "after = _sum(Leaf(most), number(1, i32))",
        "after = Leaf(most)",
    ),
    "ranges: all between the first and the last hold": (
        "passes/conditions/found",
        'self._map(select(is_whole, Leaf(end), number(0, i32)), "whole")',
        "end",
    ),
    "ranges: what is known of data is all that is asked": (
        "passes/conditions/sought",
        "return Both((*parts, told(Search(Both(sought)))))",
        "return told(Search(Both(sought)))",
    ),
    "ranges: what is not tested is what may hold": (
        "passes/streams/visits",
        "every_of(_left_to_test(op.surely_holds, certain), known)",
        "every_of(_left_to_test(op.may_hold, certain), known)",
    ),
    # Quotients and remainders.
    "quotients: what is divided ends some blocks early": (
        "dialects/diagram/solved",
        "rest.plus(quotient.form, -1).plus(ONE, divisor - 1)",
        "rest.plus(quotient.form, -1).plus(ONE, -5 * divisor)",
    ),
    "remainders: the least of a piece is the last": (
        "passes/streams/limits",
        "arith.SubiOp(self._remainder(high, term.divisor), between)",
        "arith.SubiOp(self._remainder(high, term.divisor), self.constant(0))",
    ),
    "remainders: of a cell the last position counts": (
        "dialects/diagram/solved",
        "return Linear({Remainder(high, term.divisor): 1}, -between.constant)",
        "return Linear({Remainder(high, term.divisor): 1})",
    ),
    # exp as exp2.
    "exp2: without log2 e": ("diagram_exp_to_exp2", "_constant(LOG2_E, op)", "_constant(1.0, op)"),
    "exp2: without log2 e after a scale": ("diagram_exp_to_exp2", "_constant(c * LOG2_E, op)", "_constant(c, op)"),
    # Shorter forms.
    "approximations: any constant beside a tanh": (
        "dialects/diagram/approximations",
        "sorted(constant_of(each) == 1 for each in op.operands)",
        "sorted(constant_of(each) is not None for each in op.operands)",
    ),
    "approximations: a cap counts once": (
        "diagram_expand_approximations",
        "there.times(risen, 2 * cap * scale)",
        "there.times(risen, cap * scale)",
    ),
    "approximations: forgets the scale of a tanh": (
        "diagram_expand_approximations",
        "make.times(inner, -2 * factor)",
        "make.times(inner, -2)",
    ),
    "approximations: a quarter of the divisor alone": (
        "diagram_expand_approximations",
        "quarter = make.times(op.lhs, 0.25)",
        "quarter = op.lhs",
    ),
    "approximations: a quarter of one term": (
        "diagram_expand_approximations",
        "make.plus(make.times(other, 0.25), constant / 4)",
        "make.plus(make.times(other, 0.25), constant)",
    ),
    "approximations: a constant is 1": ("diagram_expand_approximations", "make.number(constant)", "make.number(1.0)"),
    # Multiply-adds.
    "multiply-adds: the summand multiplies": (
        "diagram_fuse_multiply_adds",
        "math.FmaOp(left, right, summand)",
        "math.FmaOp(left, summand, right)",
    ),
    "multiply-adds: what is subtracted is added": (
        "diagram_fuse_multiply_adds",
        "left = _negated(left, total)",
        "pass",
    ),
    "streams: starts a minimum below everything": (
        "passes/expressions/reductions",
        '"min": float("inf")}',
        '"min": -float("inf")}',
    ),
    "cascade: a ratio as a difference": (
        "passes/streams/cascades",
        "(quotient if scales else apart)(change.above",
        "(apart if scales else quotient)(change.above",
    ),
    "cascade: the power of the opposite": (
        "passes/streams/moving",
        "apart(shift.above, shift.below))\n                return Change(power",
        "apart(shift.below, shift.above))\n                return Change(power",
    ),
    "hoist: the factors of a choice everywhere": (
        "passes/factors/split",
        "([chosen(factor, 1) for factor in factors] for factors in (split.above, split.below))",
        "(list(factors) for factors in (split.above, split.below))",
    ),
    "hoist: forgets a choice": (
        "passes/factors/split",
        "rest = chosen(split.rest, 0)",
        "rest = split.rest",
    ),
    "hoist: powers that are left out count": (
        "passes/factors/split",
        "return reduce(product, powers, chosen(reduce(quotient, below, others)))",
        "return reduce(product, powers, reduce(quotient, below, others))",
    ),
    "hoist: what is drawn of anything is divided": (
        "passes/factors/split",
        "            if not all(map(is_above_zero, split.below)):",
        "            if False:",
    ),
    "compose: a mask is its opposite": (
        "passes/expressions/truths",
        "return (truth, holds[0]) if",
        "return (truth, True) if",
    ),
    "streams: decides a choice the other way": (
        "passes/streams/neutral",
        "operands[1] if True in truths else operands[2]",
        "operands[2] if True in truths else operands[1]",
    ),
    "streams: rows of nothing but the neutral element have zeros": (
        "passes/expressions/infinities",
        "return all(kinds_of(Leaf(each), given, keys) == ZERO for each in operands if _depends(each, r))",
        "return True",
    ),
    "hoist: the guard upside down": (
        "passes/factors/rows",
        'compare(size, ">", number(0, size.type)), scaled, number(0, scaled.type))',
        'compare(size, ">", number(0, size.type)), number(0, scaled.type), scaled)',
    ),
    "hoist: divides by 1 unless the axis is empty": (
        "passes/factors/rows",
        'compare(size, ">", number(0, size.type)), factor, number(1, factor.type))',
        'compare(size, ">", number(0, size.type)), number(1, factor.type), factor)',
    ),
    "visits: begins at the end of a group": (
        "passes/streams/limits",
        "value = self._piece(term).first",
        "value = self._piece(term).end",
    ),
    # Sums about late values.
    "moments: the distance from the pivot reversed": (
        "passes/expressions/moments",
        "lambda atom: difference(atom, self.pivots[key_of(atom)]) if",
        "lambda atom: difference(self.pivots[key_of(atom)], atom) if",
    ),
    "moments: the pivot in the place of the mean": (
        "passes/expressions/moments",
        "return total(about, select(self._has_elements(), change, number(0)))",
        "return about",
    ),
    "moments: keeps the sign of what is subtracted": (
        "passes/expressions/polynomials",
        "_scaled(by_atom(operands[1]), -1.0)",
        "by_atom(operands[1])",
    ),
    "moments: one side of a product": (
        "passes/expressions/polynomials",
        "return [*_times(by_atom(left), right), *_times(by_atom(right), left)]",
        "return _times(by_atom(left), right)",
    ),
    "moments: forgets the half of the second": (
        "passes/expressions/polynomials",
        "0.5 if other is atom else 1.0",
        "1.0",
    ),
    "moments: repairs by what is, not by what was": (
        "passes/streams/polynomial_sums",
        "lambda term: Leaf(beside[key_of(term)], BEFORE)",
        "lambda term: Leaf(beside[key_of(term)])",
    ),
    "moments: powers are not repaired": (
        "passes/streams/polynomial_sums",
        "factor = quotient(ratio.above, ratio.below) if powers else None",
        "factor = quotient(ratio.below, ratio.above) if powers else None",
    ),
    "hoisting: the logarithm of a divisor stays": (
        "passes/factors/logarithms",
        "self.found.append(of)",
        "self.found.append(part)",
    ),
    # Fusion, parts of streams, groups.
    "fusion: takes the results of a kernel for each other": (
        "fusion",
        "block.add_op(YieldOp(*(values[value] for value in part.leaving)))",
        "block.add_op(YieldOp(*(values[value] for value in reversed(part.leaving))))",
    ),
    "fusion: two kernels that wait for each other": (
        "passes/kernels/clusters",
        "        if (through := self.flow.way_back(ops, self.members)) is not None:",
        "        if (through := None) is not None:",
    ),
    "roles: cuts an axis that is reduced": (
        "passes/kernels/roles",
        "        if axis in op.over_axes:\n            return",
        "        if False:\n            return",
    ),
    "split: every part begins at the first position": (
        "passes/streams/splits",
        'return f"({self.length} * {self.part} + {self.inner})"',
        'return f"({self.inner})"',
    ),
    "split: parts are added as they are": (
        "passes/streams/splits",
        "        if repair is None:\n            return parts",
        "        if True:\n            return parts",
    ),
    "split: the rest counts in every part": (
        "passes/streams/splits",
        "        if self.last == self.length:\n            return None",
        "        return None",
    ),
    "split: positions of a part for those of the axis": (
        "passes/streams/splits",
        "if isinstance(op, IndexOp) and op.axis == self.split.axis:",
        "if False:",
    ),
    "the last of the parts that the launch counts ends where the others do": (
        "passes/streams/splits",
        'last = f"{self.parts} - 1" if',
        'last = f"{self.parts}" if',
    ),
    "two parts that the launch counts are the last": (
        "passes/streams/splits",
        'last = f"{self.parts} - 1" if',
        'last = f"{self.parts} - 2" if',
    ),
    "an axis that is shorter than a part has none": (
        "dialects/diagram/place",
        "// form.terms[axis], 1)",
        "// form.terms[axis], 0)",
    ),
    "what a mean divides by is the size of a part": (
        "passes/streams/splits",
        "extent = ExtentOp(extents[0].axis.data)",
        'extent = ExtentOp(extents[0].axis.data + "_in")',
    ),
    "compose: forgets what makes elements absent": (
        "passes/expressions/scalars",
        "return bool(unread) and not absences_of(unread) <= absences_of(read)",
        "return False",
    ),
    "compose: one operand for all": (
        "diagram_compose_maps",
        "lambda leaf: inner.get(leaf.value, leaf))",
        "lambda leaf: next(iter(inner.values()), leaf))",
    ),
    "transpose operands: what a condition leaves out counts": (
        "passes/products/transposed_operands",
        "wanted = _through_conditions(each, known)",
        "wanted = moved",
    ),
    "transpose operands: what others have in its order, too": (
        "passes/products/transposed_operands",
        "if not isinstance(operand.value, OpResult) or not is_made_by_name(operand.value):",
        "if False:",
    ),
    "transpose operands: any array that is named": (
        "diagram_transpose_operands",
        "if missing := [name for name in self.operands if name not in done]:",
        "if missing := []:",
    ),
    "widen: one operand for the other": (
        "diagram_widen_operands",
        "op.operands = [wide[op.lhs], wide[op.rhs]]",
        "op.operands = [wide[op.rhs], wide[op.rhs]]",
    ),
    "recompute: one operand for the other": (
        "diagram_recompute",
        "operands = [values.get(operand, operand) for operand in op.operands]",
        "operands = [values.get(operand, operand) for operand in reversed(op.operands)]",
    ),
    "dots: add in place of multiplying": ("passes/expressions/dots", "arith.MulfOp", "arith.AddfOp"),
    # Roles of axes, written down.
    "streaming: streams what is weaved": (
        "streaming",
        "stream={axis: old.stream.as_dict().get(axis, UNDECIDED)}",
        "stream={(*roles.group, axis)[0]: old.stream.as_dict().get(axis, UNDECIDED)}",
    ),
    "streaming: any axis that is asked for": (
        "streaming",
        "if self.axis and all(self.axis not in op.over_axes for op in part.reducing):",
        "if False:",
    ),
    "tiling: cuts what is reduced": (
        "passes/kernels/groups",
        "others = (*self.refused, *self.old.stream.as_dict())",
        "others = (*self.old.stream.as_dict(),)",
    ),
    "tiling: any axis that is asked for": (
        "tiling",
        "reason = not_grouped(part, self.axis, WHOLE_LIMIT, self.repeated) if self.axis else None",
        "reason = None",
    ),
    "tiling: holds what it is asked to, whatever that is": (
        "tiling",
        "if self.repeated and given.able and (reason := groups.impossible) is not None:",
        "if False:",
    ),
    "tiling: repeats along any axis": (
        "tiling",
        "if unable := [axis for axis in self.repeated if axis not in able and axis != NONE]:",
        "if unable := []:",
    ),
    "set-sizes: results keep their sizes": (
        "diagram_set_sizes",
        "            _retype(result, given)\n",
        "            pass\n",
    ),
    "set-sizes: all axes alike": (
        "diagram_set_sizes",
        "shape = [given.get(axis, size) for axis, size in sizes_of(type).items()]",
        "shape = [next(iter(given.values())) for axis, size in sizes_of(type).items()]",
    ),
    "subloop: pieces that leave a rest": (
        "hierarchy_subloop",
        "if size >= held or held % size:",
        "if size >= held:",
    ),
    "subloop: no multiple of the instruction": ("hierarchy_subloop", "if size % depth:", "if False:"),
    "subloop: walks what is in registers": (
        "hierarchy_subloop",
        "if left not in kernel.body.block.args and stays_in_registers(product, left, row):",
        "if False:",
    ),
    "transpose: the result goes out as it is saved": (
        "passes/kernels/transposed",
        "lambda use: use.operation in users",
        "lambda use: False",
    ),
    "transpose: the kernel reads what it read": (
        "passes/kernels/transposed",
        "[copy.outputs[0] if each is turn.value else each for each in kernel.operands]",
        "list(kernel.operands)",
    ),
    "transpose: any array that is named": (
        "hierarchy_transpose_arrays",
        "if missing := [name for name in self.arrays if name not in done]:",
        "if missing := []:",
    ),
    "promote: sums of products of any format": ("hierarchy_promote_sums", 'multiply_format(op) == "f8" and ', ""),
    "promote: in the middle of a step": ("hierarchy_promote_sums", "if self.every % STEP_DEPTH:", "if False:"),
}
