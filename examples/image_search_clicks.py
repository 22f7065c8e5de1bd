"""Search images over HTTP and let the ranking follow the clicks: python image_search_clicks.py [number of pages].

The script starts `bitrank serve` on the embedded digits and plays a user who looks for digits of the query's class.
"""

import subprocess
import sys
import tempfile
import time
from pathlib import Path

import httpx

from bitrank.datasets import digits


def main(n_pages: int) -> None:
    """Search, click, and ask what was learned."""
    labels = digits().labels
    command = [Path(sys.executable).with_name("bitrank"), "serve", "--port", "0", "--data", tempfile.mkdtemp()]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            address = server.stdout.readline().rpartition(" at ")[2].strip()
            with httpx.Client(base_url=address) as client:
                use(client, labels, n_pages)
        finally:
            server.terminate()


def use(client: httpx.Client, labels, n_pages: int) -> None:
    """Play the user."""
    for query in range(n_pages):
        page = client.post("/search", json={"item": query, "k": 20, "explore": 4}).json()
        right = [result["id"] for result in page["results"] if labels[result["id"]] == labels[query]]
        client.post("/feedback", json={"page_token": page["page_token"], "clicked": right[:5]}).raise_for_status()
        if query % 50 == 0:
            print(f"page {query}: {len(right)} of {len(page['results'])} right, by version {page['version']}")
    candidate = {}
    while candidate.get("n_learned", -1) < n_pages:  # learning follows the clicks within a moment
        time.sleep(0.1)
        candidate = client.get("/profiles/default/candidate").json()
    print("pages learned from:", candidate["n_learned"])
    for decision in client.get("/profiles/default/quality").json():
        print("decision:", decision)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 200)
