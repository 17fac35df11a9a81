"""What a run knows of all cases, kept in its result."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import checks

from speed.conditions import Conditions
from speed.found import Found, table
from speed.goals import GOALS, Judged


class Kept:
    """Written anew when there is more; all that is known of a case is not given up for a part."""

    def __init__(self, data: dict[str, Any], write: Callable[[], object], conditions: Conditions):
        self._data, self._write, self._conditions = data, write, conditions
        self.cases: dict[str, Found] = {}
        self.ended: list[checks.Done] = []
        self._whole: set[str] = set()

    def found(self, found: Found, whole: bool) -> None:
        case = str(found.case)
        if not whole and case in self._whole:
            return
        self.cases[case] = found
        if whole:
            self._whole.add(case)
            print(table([found]), flush=True)
        self.keep()

    def end(self, done: checks.Done) -> None:
        self.ended.append(done)
        print(done.told(), flush=True)
        self.keep()

    def keep(self) -> None:
        cases = [each.as_json() | self._conditions.during(each.span) for each in self.cases.values()]
        self._data["speed"] = [*cases, *(done.as_json() for done in self.ended if not done.ok)]
        self._data["goals"] = [each.as_json() for each in self._judged()]
        self._write()

    def _judged(self) -> list[Judged]:
        return [goal.judge(list(self.cases.values())) for goal in GOALS]

    def __str__(self) -> str:
        return "\n".join([table(list(self.cases.values())), *map(str, self._judged())])
