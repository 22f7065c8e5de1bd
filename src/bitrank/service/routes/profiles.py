"""Routes of profiles: versions of their weights, activations, the candidate, and what the gate found."""

from __future__ import annotations

from typing import Annotated, Any

import numpy as np
import sqlalchemy as sa
from fastapi import APIRouter, HTTPException, Path, Query, Response

from bitrank.clicks.window import shares
from bitrank.core.checks import check_weights
from bitrank.service import schemas
from bitrank.service.routes.problems import PROBLEMS, Once, after_commit, do_once, refusals
from bitrank.service.service import Service
from bitrank.service.store import profiles as stored_versions
from bitrank.service.store.profiles import DEFAULT, HAMMING, Version, active_stack
from bitrank.service.store.rankings import Ranking
from bitrank.service.store.requests import Outcome, RequestKey, Write

Name = Annotated[schemas.ProfileName, Path()]
VersionId = Annotated[int, Path(ge=1, lt=2**31)]
ClientId = Annotated[schemas.ClientName, Path()]


def routes(service: Service) -> APIRouter:
    """Create the routes of profiles."""
    router = APIRouter(tags=["profiles"], responses=PROBLEMS)
    store = service.store.profiles

    def check_profile(name: str) -> None:
        with refusals():
            service.active(name)

    def check_writable(name: str) -> None:
        if name == HAMMING:
            raise HTTPException(403, "the profile hamming is read-only: its weights are uniform, for comparison")
        check_profile(name)

    def read_version(name: str, number: int) -> Version:
        version = store.version(name, number)
        if version is None:
            raise HTTPException(404, f"profile {name!r} has no version {number}")
        return version

    def read_weights(body: schemas.WeightsGiven | None) -> Ranking:
        if body is None:
            return Ranking(np.ones(service.collection.n_bits, np.float32))
        with refusals():
            return Ranking(check_weights(body.weights, service.collection.n_bits))

    def show(name: str, n_pages: int) -> schemas.ProfileShown:
        return schemas.ProfileShown(
            name=name,
            version=service.active(name).number,
            n_versions=store.n_versions(name),
            n_pages=n_pages,
            read_only=name == HAMMING,
        )

    def activated(name: str, once: RequestKey | None, write: Write) -> schemas.Active:
        version = do_once(service, once, lambda: write, service.refresh_active)["version"]
        service.link.wake()
        return schemas.Active(profile=name, version=version)

    @router.get("/profiles")
    def profiles() -> list[schemas.ProfileShown]:
        """List all profiles."""
        n_pages = store.n_pages()
        service.refresh_active()  # only now, so that it knows all these profiles
        return [show(name, n) for name, n in n_pages.items()]

    @router.put(
        "/profiles/{name}",
        responses={
            201: {"model": schemas.ProfileShown, "description": "Created"},
            409: {"model": schemas.Problem, "description": "It exists, and has other weights"},
        },
    )
    def make(
        name: Name, response: Response, once: Once, body: schemas.WeightsGiven | None = None
    ) -> schemas.ProfileShown:
        """Create a profile, with these weights or uniform ones; an existing one stays as it is."""

        def prepare() -> Write:
            if name in store.n_pages():
                return lambda _: {"created": False}
            ranking, origin = read_weights(body), "uniform" if body is None else "given"
            return lambda connection: {"created": stored_versions.add_profile(connection, name, ranking, origin)}

        if do_once(service, once, prepare, service.refresh_active).get("created", True):
            response.status_code = 201
            return schemas.ProfileShown(name=name, version=1, n_versions=1, n_pages=0, read_only=False)
        if body is not None:
            raise HTTPException(409, f"profile {name!r} exists: give it weights by POST /profiles/{name}/versions")
        return show(name, store.n_pages().get(name, 0))

    @router.delete("/profiles/{name}", status_code=204)
    def delete(name: Name, once: Once) -> None:
        """Delete a profile with its versions, its answered pages, and what is known of its clients."""
        if name in (HAMMING, DEFAULT):
            raise HTTPException(403, f"the profile {name} cannot be deleted: it always exists")

        def prepare() -> Write:
            check_profile(name)
            return lambda connection: {"deleted": stored_versions.delete_profile(connection, name)}

        def apply() -> None:
            service.refresh_active()
            service.candidates.refresh()

        do_once(service, once, prepare, apply)

    @router.get("/profiles/{name}/versions")
    def versions(name: Name) -> schemas.VersionList:
        """List the versions of a profile and the log of their activations."""
        check_profile(name)
        log = store.activations(name)
        stack = active_stack(log)
        return schemas.VersionList(
            active=stack[-1],
            rollback_to=stack[-2] if len(stack) > 1 else None,
            versions=[
                schemas.VersionShown(**facts, active=facts["number"] == stack[-1]) for facts in store.versions(name)
            ],
            activations=[schemas.ActivationShown(**entry._asdict()) for entry in log],
        )

    @router.post("/profiles/{name}/versions", status_code=201)
    def add_version(name: Name, body: schemas.WeightsGiven, once: Once) -> schemas.VersionShown:
        """Keep weights that were learned elsewhere as a new version, not yet active."""
        check_writable(name)
        weights, active = read_weights(body), service.active(name).number
        added: dict[int, Version] = {}

        def write(connection: sa.Connection) -> Outcome:
            version = stored_versions.add_version(connection, name, weights, "given", {})
            added[version.number] = version
            return {"version": version.number}

        number = do_once(service, once, lambda: write, lambda: None)["version"]
        version = added[number] if number in added else read_version(name, number)
        return schemas.VersionShown(**version.facts(), active=version.number == active)

    @router.get("/profiles/{name}/versions/{number}")
    def version(name: Name, number: VersionId) -> schemas.VersionWhole:
        """Show a version with its weights."""
        check_profile(name)
        stored = read_version(name, number)
        active = stored.number == service.active(name).number
        return schemas.VersionWhole(
            **stored.facts(), active=active, weights=stored.ranking.weights.tolist(), clients=stored.clients
        )

    @router.get("/profiles/{name}/candidate")
    def candidate(name: Name) -> schemas.Candidate:
        """Show the candidate, which follows an answered page within a moment; the gate may make it a version."""
        service.candidates.refresh()
        n_learned = service.candidates.position(name)  # first: the weights have then learned from as many pages or more
        with refusals():
            ranking = service.ranking(name, "candidate").ranking
        return schemas.Candidate(n_learned=n_learned, kind=ranking.kind, weights=ranking.weights.tolist())

    @router.post("/profiles/{name}/versions/{number}/activate")
    def activate(name: Name, number: VersionId, once: Once) -> schemas.Active:
        """Activate a version; learning goes on from it with later pages."""
        check_writable(name)
        read_version(name, number)

        def write(connection: sa.Connection) -> Outcome:
            stored_versions.activate_version(connection, name, number, "user")
            return {"version": number}

        return activated(name, once, write)

    @router.post(
        "/profiles/{name}/rollback", responses={409: {"model": schemas.Problem, "description": "At its first version"}}
    )
    def roll_back(name: Name, once: Once) -> schemas.Active:
        """Undo the last activation; learning goes on from the version before it with later pages."""
        check_writable(name)

        def write(connection: sa.Connection) -> Outcome:
            version = stored_versions.roll_back(connection, name)
            if version is None:
                raise HTTPException(409, f"profile {name!r} is at its first version: there is nothing to go back to")
            return {"version": version}

        return activated(name, once, write)

    @router.get("/profiles/{name}/clients")
    def clients(name: Name, limit: Annotated[int, Query(ge=1, le=10_000)] = 100) -> list[schemas.ClientShown]:
        """List the clients who clicked, busiest first, with what is known of them."""
        check_profile(name)
        facts, blocked = service.store.clients.facts(name), service.store.clients.blocked()[1] or set()
        n_pages = {client: one.n_pages for client, one in facts.items()}
        share = shares(n_pages, {client for client, one in facts.items() if one.left_out} | blocked)
        shown = [
            schemas.ClientShown(
                client=client,
                n_pages=one.n_pages,
                share=share[client],
                agreement=one.sums[0, 1] / one.sums[0, 0] if one.sums[0, 0] else None,
                left_out=one.left_out,
                blocked=client in blocked,
            )
            for client, one in facts.items()
        ]
        unknown: dict[str, Any] = {"n_pages": 0, "share": 0.0, "agreement": None, "left_out": False, "blocked": True}
        gone = [schemas.ClientShown(client=client, **unknown) for client in sorted(blocked - facts.keys())]
        return sorted([*shown, *gone], key=lambda one: (-one.n_pages, one.client))[:limit]

    @router.post("/clients/{client}/block")
    def block(client: ClientId) -> schemas.Blocked:
        """Learn from no page of a client, in no profile; versions that it taught are rolled back now."""
        changed = service.store.clients.block(client)
        with after_commit():
            service.refresh_active()
        service.link.wake()
        return schemas.Blocked(client=client, blocked=True, changed=changed)

    @router.post("/clients/{client}/unblock")
    def unblock(client: ClientId) -> schemas.Blocked:
        """Learn from a client's pages again."""
        changed = service.store.clients.unblock(client)
        service.link.wake()
        return schemas.Blocked(client=client, blocked=False, changed=changed)

    @router.get("/profiles/{name}/unanswered")
    def unanswered(name: Name) -> schemas.Unanswered:
        """Draw an item that was the query of no answered page; null where there is none among a thousand."""
        check_profile(name)
        ids = service.collection.sorted_ids
        drawn = [int(item) for item in np.random.default_rng().permutation(ids[:: max(1, len(ids) // 1000)])[:1000]]
        answered = service.store.pages.answered(name, drawn)
        return schemas.Unanswered(item=next((item for item in drawn if item not in answered), None))

    @router.get("/profiles/{name}/quality")
    def quality(name: Name, limit: Annotated[int, Query(ge=1, le=10_000)] = 1000) -> list[schemas.Quality]:
        """Show what the gate found over time, oldest first."""
        check_profile(name)
        return [schemas.Quality(**finding) for finding in service.store.gate.findings(name, limit)]

    return router
