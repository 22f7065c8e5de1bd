"""`Filter`: which items a search considers, by the columns of their payloads; of one item, or of a table."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from typing import Annotated, Any, Self

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, ConfigDict, Field, StrictBool, StrictFloat, StrictInt, StrictStr, model_validator

MAX_PARTS = 100

Text = Annotated[StrictStr, Field(max_length=1000)]
Number = Annotated[StrictInt, Field(ge=-(2**53), le=2**53)] | Annotated[StrictFloat, Field(allow_inf_nan=False)]
Ordered = Number | Text
Value = StrictBool | Ordered
Flags = npt.NDArray[np.bool_]

_ORDERS = {"at_least": operator.ge, "above": operator.gt, "at_most": operator.le, "below": operator.lt}


def _given(name: str) -> dict[str, Any]:
    return {"required": [name], "properties": {name: {"not": {"type": "null"}}}}


_CONDITIONS = [_given(name) for name in ("equals", "in", *_ORDERS)]
# What the document of the API says of the form: a column with conditions, or one join without any.
_FORMS: list[Any] = [_given("column") | {"anyOf": _CONDITIONS}] + [
    _given(name) | {"not": {"anyOf": _CONDITIONS}} for name in ("and", "or", "not")
]


class Filter(BaseModel):
    """Conditions on a column of the payload, of which all must hold; or other filters, joined.

    An item without the column, or whose value is of another kind than the condition's, does not match. Of a list, one
    element must match.

    Examples
    --------
    >>> cheap = Filter.model_validate({"and": [{"column": "price", "below": 10}, {"column": "kind", "in": ["a", "b"]}]})
    >>> cheap.matches({"price": 3, "kind": "a"}), cheap.matches({"price": 30, "kind": "a"}), cheap.matches({})
    (True, False, False)
    """

    model_config = ConfigDict(extra="forbid", json_schema_extra={"oneOf": _FORMS})

    column: Annotated[StrictStr, Field(min_length=1, max_length=200)] | None = None
    equals: Value | None = None
    among: Annotated[list[Value], Field(min_length=1, max_length=1000)] | None = Field(None, alias="in")
    at_least: Ordered | None = None
    above: Ordered | None = None
    at_most: Ordered | None = None
    below: Ordered | None = None
    all_of: Annotated[list[Filter], Field(min_length=1, max_length=MAX_PARTS)] | None = Field(None, alias="and")
    any_of: Annotated[list[Filter], Field(min_length=1, max_length=MAX_PARTS)] | None = Field(None, alias="or")
    none_of: Filter | None = Field(None, alias="not")

    @model_validator(mode="after")
    def _one_form(self) -> Self:
        names = {name for name in type(self).model_fields if getattr(self, name) is not None}
        joins = names & {"all_of", "any_of", "none_of"}
        if len(names) != 1 if joins else "column" not in names or len(names) < 2:
            raise ValueError("a filter must be a column with conditions, or one of and, or, not")
        if sum(1 for _ in self.parts()) > MAX_PARTS:
            raise ValueError(f"a filter must have at most {MAX_PARTS} parts, got more")
        return self

    def parts(self) -> Iterator[Filter]:
        """This filter and all within it."""
        yield self
        for inner in (*(self.all_of or ()), *(self.any_of or ()), *([self.none_of] if self.none_of else [])):
            yield from inner.parts()

    def columns(self) -> set[str]:
        """The columns that it names."""
        return {part.column for part in self.parts() if part.column is not None}

    def matches(self, payload: dict[str, Any]) -> bool:
        """Tell whether the payload of one item matches."""
        return bool(self.join(lambda part: np.array([part.holds(payload.get(part.column or ""))])).all())

    def join(self, of_column: Callable[[Filter], Flags]) -> Flags:
        """Join what is known of conditions on single columns."""
        if self.none_of is not None:
            return ~self.none_of.join(of_column)
        if self.column is not None:
            return of_column(self)
        parts = [part.join(of_column) for part in self.all_of or self.any_of or ()]
        return np.asarray((np.logical_and if self.all_of else np.logical_or).reduce(parts))

    def holds(self, value: Any) -> bool:
        """Tell whether the conditions on a column hold for one value, as JSON has it."""
        if isinstance(value, list):
            return any(self.holds(element) for element in value)
        wanted = ([] if self.equals is None else [[self.equals]]) + ([] if self.among is None else [self.among])
        if not all(any(_kind(value) == _kind(one) and value == one for one in those) for those in wanted):
            return False
        limits = [(order, limit) for name, order in _ORDERS.items() if (limit := getattr(self, name)) is not None]
        return all(_kind(value) == _kind(limit) and order(value, limit) for order, limit in limits)

    def holds_for(self, values: npt.NDArray[Any]) -> Flags:
        """Tell for which numbers the conditions hold; NaN and infinity are no values, as in JSON."""
        if values.dtype.kind == "f":
            values = values.astype(np.float64)
        found = np.isfinite(values)
        for those in ([] if self.equals is None else [self.equals]), self.among:
            if those:
                found &= np.isin(values, [one for one in those if _kind(one) == "number"])
        for name, order in _ORDERS.items():
            limit = getattr(self, name)
            if limit is not None:
                found &= order(values, limit) if _kind(limit) == "number" else False
        return np.asarray(found)


def _kind(value: Any) -> str:
    if isinstance(value, bool):
        return "bool"
    return "number" if isinstance(value, int | float) else "text" if isinstance(value, str) else "none"
