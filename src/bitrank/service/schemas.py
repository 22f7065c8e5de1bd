"""Requests and answers as Pydantic models, which check requests and describe the API to OpenAPI."""

from __future__ import annotations

import json
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from bitrank.clicks.log import check_clicked
from bitrank.service.filtering import Filter
from bitrank.service.page_tokens import MAX_SHOWN, MAX_TOKEN

MAX_K = 1000
MAX_OFFSET = 10_000
MAX_BATCH = 1000
MAX_CHOSEN = 20
MAX_EXAMPLES = 100
MAX_TEXT = 2000
MAX_CODE_TEXT = 16_384
MAX_VECTOR = 65_536
MAX_PAYLOAD = 16_384
MAX_DEPTH = 16


def whole(value: Any) -> Any:
    """Read 3.0 as 3, also within lists and objects: it is the same number in JSON."""
    if isinstance(value, dict):
        return {name: whole(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [whole(inner) for inner in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


Id = Annotated[int, Field(ge=0, le=2**63 - 1)]
AnyId = Annotated[Id, BeforeValidator(whole)]  # searches, which have no time for that, are read again where they fail
PROFILE_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$"
ClientName = Annotated[str, Field(min_length=1, max_length=64, pattern=r"^[\x21-\x7e]+$")]
ProfileName = Annotated[str, Field(pattern=PROFILE_PATTERN)]
CodeText = Annotated[str, Field(min_length=1, max_length=MAX_CODE_TEXT, description="hex digits or base64")]
QueryName = Annotated[str, Field(min_length=1, max_length=400, pattern=r"^[^\x00-\x1f\x7f]+$")]
Number = Annotated[float, Field(allow_inf_nan=False)]
Vector = Annotated[list[Number], Field(min_length=1, max_length=MAX_VECTOR)]
TokenText = Annotated[str, Field(min_length=1, max_length=MAX_TOKEN, description="page_token of a search")]
VersionNumber = Annotated[int, Field(ge=1, lt=2**31)]


class Request(BaseModel):
    """A request: no fields but the named ones, and no conversion of texts to numbers."""

    model_config = ConfigDict(extra="forbid", strict=True)


def one_of(*names: str) -> ConfigDict:
    """Say in the document of the API that exactly one of some fields must be there."""
    forms: list[Any] = [{"required": [name], "properties": {name: {"not": {"type": "null"}}}} for name in names]
    return ConfigDict(extra="forbid", strict=True, json_schema_extra={"oneOf": forms})


class QueryBy(Request):
    """A query: exactly one of an item, a code and a vector."""

    model_config = one_of("item", "code", "vector")

    item: Id | None = None
    code: CodeText | None = None
    vector: Vector | None = None

    @model_validator(mode="after")
    def _one(self) -> Self:
        names = [name for name in ("item", "code", "vector", "positives") if name in type(self).model_fields]
        kinds = [name for name in names if getattr(self, name) is not None]
        if len(kinds) != 1:
            raise ValueError(f"give exactly one of {', '.join(names[:-1])} and {names[-1]}, got {kinds or 'none'}")
        return self


class AnyQuery(QueryBy):
    """The query of an imported page."""

    item: AnyId | None = None


class Search(QueryBy):
    """A search."""

    model_config = one_of("item", "code", "vector", "positives")

    k: Annotated[int, Field(ge=1, le=MAX_K)] = 20
    profile: ProfileName | None = None
    version: VersionNumber | Literal["candidate"] | None = Field(
        None, description="a version other than the active one; `candidate` is what clicks have made of it so far"
    )
    positives: Annotated[list[Id], Field(min_length=1, max_length=MAX_EXAMPLES)] | None = Field(
        None, description="items that are right, in place of another query: what is like them, whatever was learned"
    )
    negatives: Annotated[list[Id], Field(max_length=MAX_EXAMPLES)] = Field(
        [], description="items that are wrong, beside positives"
    )
    explore: Annotated[int, Field(ge=0, le=MAX_K)] | None = Field(
        None, description="places for items from deeper ranks, the fourth or later ones; none by default"
    )
    filter: Filter | None = Field(None, description="which items are searched, by columns of their payloads")
    offset: Annotated[int, Field(ge=0, le=MAX_OFFSET)] = Field(0, description="results to leave out at the top")
    recall: Annotated[float, Field(ge=0.8, le=0.999)] | None = Field(
        None,
        description="share of the exact results to find, in a collection with cells; null leaves it to the service",
    )
    chosen: Annotated[tuple[Id, ...], Field(max_length=MAX_CHOSEN)] = Field(
        (), description="items chosen for this query so far; this answer adapts to them, and no other does"
    )
    continues: TokenText | None = Field(
        None, description="page token of the last answer to this query: both answers then count as one page"
    )

    @model_validator(mode="after")
    def _examples(self) -> Self:
        if self.positives is None and self.negatives:
            raise ValueError("negatives must come with positives, got them alone")
        return self


class Address(Request):
    """What the address of a search may say."""

    profile: ProfileName


class Lift(BaseModel):
    """Why a result stands higher than its own distance puts it: a judged query near this one names it."""

    query: str
    pinned: bool = Field(description="by an operator")


class Result(BaseModel):
    """One result of a page."""

    id: int
    rank: int
    distance: float
    tie: int = Field(description="rank of the first result with the same distance")
    explored: bool = Field(description="taken from a deeper rank to explore")
    title: str | None
    image: str | None
    payload: dict[str, Any]
    lifted: Lift | None


class Searched(BaseModel):
    """The query as a code."""

    code: str
    item: int | None


class Results(BaseModel):
    """A page of results."""

    query: Searched
    profile: str
    version: int | Literal["candidate"]
    results: list[Result]
    page_token: str = Field(description="what `POST /feedback` takes: this page, signed")
    took_ms: float


class Shown(Request):
    """One item that was shown."""

    id: AnyId
    explored: bool = False


class Feedback(Request):
    """Which results of a page were clicked; a page counts once."""

    page_token: TokenText
    clicked: Annotated[list[AnyId], Field(max_length=MAX_SHOWN)]
    profile: ProfileName | None = Field(
        None, description="which profile learns from a page of the profile hamming; another page has its own"
    )


class ImportedPage(Request):
    """A page logged elsewhere; a key counts once.

    The body of a `bitrank.clicks.LoggedPage`, as a request that OpenAPI can describe.
    """

    key: Annotated[str, Field(min_length=1, max_length=200, pattern=r"^[\x21-\x7e]+$")]
    profile: ProfileName | None = None
    version: VersionNumber | Literal["candidate"] | None = None
    client: ClientName | None = None
    query: AnyQuery
    shown: Annotated[list[Shown], Field(min_length=1, max_length=MAX_SHOWN, description="in the order of the page")]
    clicked: Annotated[list[AnyId], Field(max_length=MAX_SHOWN)]

    @model_validator(mode="after")
    def _check_clicked(self) -> Self:
        check_clicked([place.id for place in self.shown], self.clicked)
        return self


class Accepted(BaseModel):
    """Whether the page is new (false: it was known), its key in the log, and the number of pages of its profile."""

    accepted: bool
    key: str
    n_pages: int


class NewItem(Request):
    """An item to add, or to replace the one with the same id."""

    model_config = one_of("code", "vector")

    id: AnyId
    code: CodeText | None = None
    vector: Vector | None = None
    title: Annotated[str, Field(max_length=MAX_TEXT)] | None = None
    image: Annotated[str, Field(min_length=1, max_length=MAX_TEXT)] | None = None
    payload: dict[str, Any] = {}

    @model_validator(mode="after")
    def _one(self) -> Self:
        if (self.code is None) == (self.vector is None):
            raise ValueError("give either a code or a vector")
        if "\0" in (self.title or "") + (self.image or ""):
            raise ValueError("title and image must not hold a zero character")
        try:
            size = len(json.dumps(self.payload, ensure_ascii=False, allow_nan=False).encode())
        except (ValueError, RecursionError) as error:
            raise ValueError(f"payload must be JSON: {error}") from None
        if size > MAX_PAYLOAD:
            raise ValueError(f"payload must have at most {MAX_PAYLOAD} bytes, got {size}")
        if _depth(self.payload) > MAX_DEPTH:
            raise ValueError(f"payload must be nested at most {MAX_DEPTH} deep, got more")
        return self


def _depth(value: Any, limit: int = MAX_DEPTH + 1) -> int:
    """Count how deep objects and lists are nested, up to a limit."""
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    if limit == 0 or not isinstance(value, dict | list):
        return 0
    return 1 + max((_depth(one, limit - 1) for one in inner), default=0)


class NewItems(Request):
    """Items to add, all or none."""

    items: Annotated[list[NewItem], Field(min_length=1, max_length=MAX_BATCH)]


class Graded(Request):
    """An item that a query wants, or with a grade of 0 no longer."""

    id: Id
    grade: Annotated[int, Field(ge=0, le=30)] = 1


class NewJudgement(QueryBy):
    """What a query wants."""

    query: QueryName | None = Field(None, description="its name; that of the judged query of its code by default")
    items: Annotated[list[Graded], Field(min_length=1, max_length=MAX_BATCH)]
    pinned: bool = Field(False, description="put the items first for this query, whatever the gate says")


class NewJudgements(Request):
    """Judgements to remember, all or none."""

    judgements: Annotated[list[NewJudgement], Field(min_length=1, max_length=MAX_BATCH)]


class Judgements(BaseModel):
    """Names of the judged queries."""

    queries: list[str]


class JudgedItem(BaseModel):
    """An item that a judged query names."""

    id: int
    grade: int
    pinned: bool


class JudgedQuery(BaseModel):
    """A judged query."""

    query: str
    items: list[JudgedItem]


class JudgementList(BaseModel):
    """Some of the judged queries."""

    total: int
    judgements: list[JudgedQuery]


class Added(BaseModel):
    """Number of items that are new, and of those that replaced others."""

    added: int
    replaced: int


class ItemShown(BaseModel):
    """An item."""

    id: int
    code: str
    title: str | None
    image: str | None
    payload: dict[str, Any]


class ItemList(BaseModel):
    """Some of the items, by ascending id."""

    total: int
    items: list[ItemShown]


class CollectionShown(BaseModel):
    """The collection that is served."""

    name: str
    n_items: int
    n_bits: int
    has_images: bool
    has_hasher: bool
    image_search: bool
    page_size: int
    explore: int
    columns: list[str] = Field(description="of the payloads; a filter may name them")


class WeightsGiven(Request):
    """Weights, one per bit, not negative."""

    weights: Annotated[list[Annotated[float, Field(ge=0, le=1e30, allow_inf_nan=False)]], Field(max_length=65_535)]


class ProfileShown(BaseModel):
    """A profile."""

    name: str
    version: int = Field(description="the active one")
    n_versions: int
    n_pages: int = Field(description="answered pages in its log")
    read_only: bool


class VersionShown(BaseModel):
    """A version: how a profile ranks."""

    number: int
    kind: str = Field(description="weights, one per bit; or the class of a ranker")
    active: bool
    time: float
    origin: str
    made_from: int | None
    n_pages: int = Field(description="answered pages in the log when it was made")
    figures: dict[str, Any]


class ActivationShown(BaseModel):
    """An entry of the log of activations."""

    version: int
    reason: str
    n_pages: int
    time: float


class VersionList(BaseModel):
    """The versions of a profile and the log of their activations, oldest first; `rollback_to` undoes the last one."""

    active: int
    rollback_to: int | None
    versions: list[VersionShown]
    activations: list[ActivationShown]


class VersionWhole(VersionShown):
    """A version with its weights, one per bit: of a ranker that has others for every query, their mean."""

    weights: list[float]
    clients: dict[str, float] | None = Field(description="who taught it by clicks, with their shares of the evidence")


class ClientShown(BaseModel):
    """A client who clicked."""

    client: str
    n_pages: int
    share: float = Field(description="of the evidence: at most 2 % or one page, whatever it sends")
    agreement: float | None = Field(description="how often Hamming distance ranks its clicks alike; chance is one half")
    left_out: bool = Field(description="its clicks go against the rest: they teach nothing")
    blocked: bool = Field(description="an operator said so")


class Blocked(BaseModel):
    """Whether a client is blocked now, and whether that is new."""

    client: str
    blocked: bool
    changed: bool


class Candidate(BaseModel):
    """What was learned from clicks so far, and the number of pages that it was learned from; weights as in versions."""

    n_learned: int
    kind: str
    weights: list[float]


class Unanswered(BaseModel):
    """An item that was the query of no answered page of a profile."""

    item: int | None


class Active(BaseModel):
    """The active version of a profile."""

    profile: str
    version: int


class Quality(BaseModel):
    """What the gate found at one time: how well each ranks held-out clicks, and what the gate decided."""

    time: float
    n_pages: int
    active: float | None
    candidate: float | None
    hamming: float | None
    error: float | None = Field(None, description="the largest standard error of these three, over clients")
    top: float | None = Field(None, description="the candidate's gain over Hamming among near items")
    decision: str = Field(description="activate, keep or roll back")
    reason: str
    n_held_out: int = Field(description="held-out pages with explored clicks")
    n_left_out: int = Field(0, description="clients whose clicks go against the rest, and are not learned from")
    alarm: bool = Field(description="the active version ranks clicks worse than Hamming")


class Problem(BaseModel):
    """What was expected, and what came instead."""

    detail: str
