"""Deliberate mistakes in the choice of sizes: a file, what stands in it, and what a mistake puts there. Whatever sizes
are chosen, results are the same; so these are held against what a choice promises (`mutant_choice.py`)."""

from __future__ import annotations

from mutated import Mutation

MUTATIONS: dict[str, Mutation] = {
    "choose: the worst of the best": (
        "compiler/cost/choice/choose",
        "    return alike[0]\n",
        "    return max(ranked, key=lambda each: each.merit)\n",
    ),
    "choose: the slowest first": (
        "compiler/cost/choice/trial",
        "np.floor(np.log(its.time_us / trial.least_time) / SAME),",
        "-np.floor(np.log(its.time_us / trial.least_time) / SAME),",
    ),
    "choose: not for the sizes of the program": (
        "hierarchy_choose_sizes",
        "max(1, defaults.get(axis, UNKNOWN_SIZE) if size == DYNAMIC else size)",
        "max(1, UNKNOWN_SIZE if size == DYNAMIC else size)",
    ),
    "choose: forgets what is asked of the stream": (
        "hierarchy_choose_sizes",
        'stream=schedule.stream.as_dict() | own["stream"],',
        "stream=schedule.stream.as_dict(),",
    ),
    "choose: forgets what is asked of the groups": (
        "hierarchy_choose_sizes",
        'group=schedule.group.as_dict() | own["group"],',
        "group=schedule.group.as_dict(),",
    ),
    "choose: forgets what the schedule says already": (
        "hierarchy_choose_sizes",
        "for axis, size in cut.items() if size != UNDECIDED}, beside",
        "for axis, size in cut.items() if size < UNDECIDED}, beside",
    ),
    "choose: one stage for all": (
        "compiler/cost/levels/memory",
        'places = {"shared": 1, "staged": stages, "listed": 1}',
        'places = {"shared": 1, "staged": 1, "listed": 1}',
    ),
    "choose: values for bytes": (
        "compiler/cost/levels/memory",
        "    chunk = 16 // width\n",
        "    chunk, width = 16 // width, 1\n",
    ),
    "choose: values in local memory cost nothing": (
        "compiler/cost/choice/merit",
        "return Merit(found.footprint.spilled > 0, found.time_us)",
        "return Merit(False, found.time_us)",
    ),
    "choose: what groups share is read once": (
        "compiler/cost/reading/sketch",
        "again = tuple(pieces for pieces in groups if pieces.axis not in crossing.axes)",
        "again: tuple[Pieces, ...] = ()",
    ),
    "choose: groups of one index": (
        "hierarchy_choose_sizes",
        "group={axis: tiles[axis] for axis in schedule.group.as_dict()},",
        "group={axis: 1 for axis in schedule.group.as_dict()},",
    ),
}
