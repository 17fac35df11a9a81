"""The leading term of the transfers as memory grows: `H* = sum_t alpha_t M^-beta_t`, derived and not looked up.

H where sizes divide is a sum of monomials in the sizes of pieces, and so is M. Minimising the one under the other is a
geometric program; its dual is a set of linear equations whose solution gives alpha and beta in closed form where there
are as many equations as terms (Duffin, Peterson and Zener, "Geometric Programming", 1967). Where there are more terms,
a linear program over the exponents says which of them lead, and those alone are kept.

What does not grow with memory is left out of M, as the theory does: pieces of streams count as one, and a term that
another one divides (the state of a reduction beside the rows it belongs to) is dropped."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from treadle.compiler.cost.symbolic.algebra import Expr, simplex, sympy
from treadle.compiler.cost.symbolic.costs import CHIP, SymbolicCosts, axis_symbol, closed

MEMORY = sympy.Symbol("M", positive=True)
"""Values that a group may hold."""

Powers: TypeAlias = tuple[Expr, ...]
"""The exponent of each piece, in the order of `pieces`."""


@dataclass(frozen=True)
class Term:
    """`alpha M^-beta`; `alpha` is None where the geometric program has no closed form."""

    alpha: Expr | None
    beta: Expr

    def __str__(self) -> str:
        alpha = "..." if self.alpha is None else str(self.alpha)
        if self.beta == 0:
            return alpha
        bracketed = f"({alpha})" if self.alpha is not None and self.alpha.is_Add else alpha
        return f"{bracketed}*M**(-{self.beta})" if self.beta != 1 else f"{bracketed}/M"


@dataclass(frozen=True)
class LeadingTerms:
    """The least transfers between device memory and a group's own, as memory grows."""

    terms: tuple[Term, ...]
    transfer: Expr
    """H where sizes divide, pieces still free, without terms that are an axis smaller than others."""
    memory: Expr
    """What of M grows with the pieces."""

    @property
    def beta(self) -> Expr:
        """The exponent of the term that memory helps; 0 where it helps none."""
        return max((term.beta for term in self.terms), default=sympy.Integer(0))

    def __str__(self) -> str:
        return " + ".join(map(str, self.terms)) or "0"

    def at(self, memory: float, sizes: Mapping[str, int]) -> float:
        """H* where a group may hold so much; terms without a closed form, of which nothing is known but that they are
        not negative, count nothing."""
        values = {axis_symbol(axis): size for axis, size in sizes.items()}
        return sum(
            float(term.alpha.subs(values)) * memory ** -float(term.beta)
            for term in self.terms
            if term.alpha is not None
        )


def leading_terms(costs: SymbolicCosts, in_bytes: bool = False) -> LeadingTerms:
    """H* of a kernel, with `chip` as the one near level; M and H in values, or both in bytes."""
    transfer = closed(costs.transfer_bytes("device") if in_bytes else costs.transfer("device"))
    large = _without_small(transfer, _pieces(costs))
    helping = {symbol for symbol in _pieces(costs) if large.has(symbol)}
    idle = {symbol: 1 for symbol in _pieces(costs) if symbol not in helping}
    columns = [
        _leading(column.subs(idle), helping) for column in (costs.memory_bytes if in_bytes else costs.memory)[CHIP]
    ]
    variables = sorted(helping, key=str)
    constant, moving = _split(large, variables)
    # Each column must fit: the one under which the transfers fall slowest binds.
    solved = [term for column in columns if (term := _minimum(moving, column, variables))] if moving else []
    terms = [Term(sympy.factor(constant), sympy.Integer(0))] if constant != 0 else []
    if solved:
        terms.insert(0, min(solved, key=_binds_first))
    return LeadingTerms(tuple(terms), large, sympy.Max(*columns) if columns else sympy.Integer(0))


def _without_small(transfer: Expr, variables: Sequence[Expr]) -> Expr:
    """Without those terms that are an axis smaller than a term without pieces, however small pieces are: a number for
    each row beside the rows themselves."""
    terms = sympy.Add.make_args(sympy.expand(transfer))
    still = [term for term in terms if not term.has(*variables)] if variables else []
    return sympy.Add(*(term for term in terms if not any(_is_small(term, each, variables) for each in still)))


def _is_small(term: Expr, beside: Expr, variables: Sequence[Expr]) -> bool:
    axes = (beside / term).free_symbols - set(variables)
    return term.has(*variables) and bool(axes) and _divides(term, beside)


def _binds_first(term: Term) -> tuple[Expr, Expr]:
    """The slowest fall; of equal ones the one from higher up, where every axis is as long."""
    size = sympy.Integer(0) if term.alpha is None else term.alpha.subs(dict.fromkeys(term.alpha.free_symbols, 64))
    return term.beta, -size


def _pieces(costs: SymbolicCosts) -> list[Expr]:
    return [*costs.groups.values(), *costs.streams.values(), *costs.parts.values()]


def _leading(column: Expr, helping: set[Expr]) -> Expr:
    """The terms of a column that no other term is a multiple of, if a piece that helps stands in them."""
    terms = [term for term in sympy.Add.make_args(sympy.expand(column)) if term.free_symbols & helping]
    kept = [term for term in terms if not any(_divides(term, other) for other in terms if other != term)]
    return sympy.Add(*kept)


def _divides(term: Expr, other: Expr) -> bool:
    """Whether `other` is `term` times symbols, so that it is never much smaller."""
    quotient = other / term
    powers = quotient.as_powers_dict()
    return bool(quotient.free_symbols) and all(power > 0 for base, power in powers.items() if not base.is_number)


def _split(expression: Expr, variables: Sequence[Expr]) -> tuple[Expr, dict[Powers, Expr]]:
    """The part without the variables, and the coefficients of the rest by the powers of the variables."""
    constant = sympy.Integer(0)
    found: dict[Powers, Expr] = defaultdict(lambda: sympy.Integer(0))
    for term in sympy.Add.make_args(sympy.expand(expression)):
        powers = term.as_powers_dict()
        exponents = tuple(powers.get(variable, sympy.Integer(0)) for variable in variables)
        if any(exponents):
            rest = sympy.Mul(*(variable**power for variable, power in zip(variables, exponents, strict=True)))
            found[exponents] += term / rest
        else:
            constant += term
    return constant, dict(found)


def _minimum(moving: Mapping[Powers, Expr], column: Expr, variables: Sequence[Expr]) -> Term | None:
    """The least of `moving` while the column is at most M; None where the column does not keep it from vanishing."""
    _, held = _split(column, variables)
    found = _exponents(list(moving), list(held), variables)
    if found is None:
        return None
    beta, logarithms = found
    # A piece that does not grow with memory is as small as it can be: one.
    grows = [variable for variable, exponent in zip(variables, logarithms, strict=True) if exponent != 0]
    if len(grows) < len(variables):
        still = {variable: 1 for variable in variables if variable not in grows}
        _, moving = _split(_joined(moving, variables).subs(still), grows)
        return _minimum(moving, column.subs(still), grows)
    objective = {p: c for p, c in moving.items() if _dot(p, logarithms) == -beta}
    limits = {p: c for p, c in held.items() if _dot(p, logarithms) == 1}
    return Term(_coefficient(objective, limits, len(variables), beta), beta)


def _joined(terms: Mapping[Powers, Expr], variables: Sequence[Expr]) -> Expr:
    return sympy.Add(
        *(
            coefficient * sympy.Mul(*(v**p for v, p in zip(variables, powers, strict=True)))
            for powers, coefficient in terms.items()
        )
    )


def _dot(powers: Powers, logarithms: Sequence[Expr]) -> Expr:
    return sum((power * value for power, value in zip(powers, logarithms, strict=True)), sympy.Integer(0))


def _exponents(
    moving: Sequence[Powers], held: Sequence[Powers], variables: Sequence[Expr]
) -> tuple[Expr, list[Expr]] | None:
    """With pieces of M^u, the largest beta for which every moving term falls as M^-beta, and the u: a linear program.
    None where there is no largest."""
    exponents = sympy.symbols(f"u:{len(variables)}")
    slope = sympy.Symbol("t")
    constraints = [_dot(powers, exponents) <= slope for powers in moving]
    constraints += [_dot(powers, exponents) <= 1 for powers in held]
    constraints += [exponent >= 0 for exponent in exponents]
    try:
        least, _ = simplex.lpmin(slope, constraints)
    except simplex.UnboundedLPError:
        return None
    return -least, _between(least, moving, held, exponents)


def _between(slope: Expr, moving: Sequence[Powers], held: Sequence[Powers], exponents: Sequence[Expr]) -> list[Expr]:
    """Of all exponents with that slope some at which the fewest terms bind and the most pieces grow: a term that need
    not bind says nothing of alpha. Exponents are scaled, so that the slack of each limit that need not bind is one."""
    scale = sympy.Symbol("k")
    sides = [(_dot(powers, exponents), slope * scale) for powers in moving]
    sides += [(_dot(powers, exponents), scale) for powers in held]
    sides += [(-exponent, sympy.Integer(0)) for exponent in exponents]
    slack = sympy.symbols(f"s:{len(sides)}")
    constraints = [below + each <= above for (below, above), each in zip(sides, slack, strict=True)]
    constraints += [scale >= 1, *(each <= 1 for each in slack), *(each >= 0 for each in (*slack, *exponents))]
    _, found = simplex.lpmin(-sympy.Add(*slack), constraints)
    return [found.get(exponent, sympy.Integer(0)) / found[scale] for exponent in exponents]


def _coefficient(
    objective: Mapping[Powers, Expr], limits: Mapping[Powers, Expr], variables: int, beta: Expr
) -> Expr | None:
    """alpha, from the dual of the geometric program; None unless its equations have one solution."""
    if beta == 0:
        return None
    weights = sympy.symbols(f"a:{len(objective)}")
    prices = sympy.symbols(f"b:{len(limits)}")
    equations = [sympy.Add(*weights) - 1]
    for i in range(variables):
        falls = (weight * powers[i] for weight, powers in zip(weights, objective, strict=True))
        grows = (price * powers[i] for price, powers in zip(prices, limits, strict=True))
        equations.append(sympy.Add(*falls, *grows))
    found = sympy.linsolve(equations, (*weights, *prices))
    if not found:
        return None
    (values,) = found
    if any(value.free_symbols or value < 0 for value in values):
        return None
    shares, costs = values[: len(objective)], values[len(objective) :]
    parts = [(c / share) ** share for c, share in zip(objective.values(), shares, strict=True) if share != 0]
    parts += [(c / cost) ** cost for c, cost in zip(limits.values(), costs, strict=True) if cost != 0]
    whole = sympy.Add(*costs)
    return _tidy(sympy.Mul(*parts) * whole**whole)


def _tidy(expression: Expr) -> Expr:
    return sympy.powsimp(sympy.expand_power_base(sympy.factor(expression)), force=True)
