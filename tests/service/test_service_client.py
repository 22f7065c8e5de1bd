"""The client of a running service, over HTTP on loopback."""

import pytest

from bitrank.clicks import LoggedPage
from bitrank.service.client import Sent, request_json, send_pages, version_weights

PAGES = [LoggedPage(f"page-{n}", {"item": n}, [10, 20], [False, True], [20]) for n in range(5)]


def test_pages_are_sent_once(loopback_service):
    assert send_pages(PAGES[:3], loopback_service.url) == Sent(new=3, known=0)
    assert send_pages(PAGES, f"{loopback_service.url}/") == Sent(new=2, known=3)
    assert list(loopback_service.pages.values()) == [page.to_json() for page in PAGES]


def test_a_refusal_names_the_page_and_the_reason(loopback_service):
    loopback_service.capacity = 2
    with pytest.raises(ValueError, match=r"after 2 of 5 pages, at 'page-2': .*503.*the disk is full"):
        send_pages(PAGES, loopback_service.url)


def test_no_service(loopback_service):
    with pytest.raises(ValueError, match=r"after 0 of 5 pages, .*refused"):
        send_pages(PAGES, "http://127.0.0.1:9")


def test_the_token_is_sent(loopback_service):
    loopback_service.token = "secret"
    for token in (None, "another"):
        with pytest.raises(ValueError, match="401"):
            version_weights(loopback_service.version, token)
        with pytest.raises(ValueError, match="401"):
            send_pages(PAGES, loopback_service.url, token)
    assert version_weights(loopback_service.version, "secret") == [0.5, 1.0, 1.5]
    assert send_pages(PAGES, loopback_service.url, "secret").new == 5


def test_other_urls_hold_no_weights(loopback_service):
    loopback_service.weights = None
    with pytest.raises(ValueError, match="must be the URL of a version"):
        version_weights(loopback_service.version)
    with pytest.raises(ValueError, match="404"):
        request_json(f"{loopback_service.url}/profiles/default/versions/9")
