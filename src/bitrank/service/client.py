"""Talk to a running service: read the weights of a version, send logged pages. Needs no extra."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Sequence
from typing import Any, NamedTuple

from bitrank.clicks import LoggedPage
from bitrank.core.progress import progress

_TIMEOUT_S = 30


class Sent(NamedTuple):
    """The number of pages that were new to the service, and of those it already knew."""

    new: int
    known: int


def version_weights(url: str, token: str | None = None) -> list[float]:
    """Read the weights of a version from its URL, such as http://127.0.0.1:8000/profiles/default/versions/1."""
    version = request_json(url, token)
    weights = version.get("weights") if isinstance(version, dict) else None
    if not isinstance(weights, list):
        raise ValueError(f"{url} must be the URL of a version, like …/profiles/default/versions/1, got no weights")
    return weights


def send_pages(pages: Sequence[LoggedPage], url: str, token: str | None = None) -> Sent:
    """Send pages to the service at `url`, one by one; each page has a key and counts once, however often it is sent."""
    n_new = 0
    for number, page in enumerate(progress(pages, label="sending")):
        try:
            answer = request_json(f"{url.rstrip('/')}/feedback/import", token, page.to_json())
        except (ValueError, OSError) as error:
            raise ValueError(f"after {number} of {len(pages)} pages, at {page.key!r}: {error}") from None
        n_new += bool(answer["accepted"])
    return Sent(n_new, len(pages) - n_new)


def request_json(url: str, token: str | None = None, body: Any = None) -> Any:
    """Get a URL, or post a body to it, and return the JSON answer; a refusal is a ValueError with its reason."""
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    data = None if body is None else json.dumps(body).encode()
    if data is not None:
        headers["Content-Type"] = "application/json"
    request = urllib.request.Request(url, data, headers)
    try:
        with urllib.request.urlopen(request, timeout=_TIMEOUT_S) as response:
            return json.load(response)
    except urllib.error.HTTPError as error:
        with error:
            reason = error.read(2000).decode(errors="replace")
        raise ValueError(f"{url}: {error.code} {error.reason}: {reason}") from None
