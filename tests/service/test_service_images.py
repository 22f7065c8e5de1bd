"""Uploaded pictures: what is decoded, what is refused, and what it costs."""

import io
import subprocess
import sys
import threading
import warnings

import numpy as np
import pytest
from PIL import Image

from bitrank.service import images


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", r"picture \(PNG, JPEG, WEBP, GIF, BMP\), got 0 other bytes"),
        (b"<svg xmlns='http://www.w3.org/2000/svg'/>", "picture"),
        (b"\x89PNG\r\n\x1a\n" + bytes(100), "picture"),
    ],
)
def test_uploads_that_are_no_pictures_are_refused(data, message):
    with pytest.raises(ValueError, match=message) as error:
        images.decode(data)
    assert " at 0x" not in str(error.value), "an address in memory"


def test_large_pictures_are_refused_before_they_are_decompressed(monkeypatch):
    out = io.BytesIO()
    Image.new("1", (8000, 8000)).save(out, "PNG")
    assert len(out.getvalue()) < 100_000
    monkeypatch.setattr(Image.Image, "load", lambda self: pytest.fail("decompressed"))
    with pytest.raises(ValueError, match="at most 16000000 pixels and 16384 on a side, got 8000 by 8000"):
        images.decode(out.getvalue())


def test_long_pictures_are_refused_before_they_are_decompressed(monkeypatch):
    out = io.BytesIO()
    Image.new("1", (1, 16_000_000)).save(out, "PNG")
    monkeypatch.setattr(Image.Image, "load", lambda self: pytest.fail("decompressed"))
    with pytest.raises(ValueError, match="16384 on a side, got 1 by 16000000"):
        images.decode(out.getvalue())


MEASURE = """
import io, resource, sys
from PIL import Image
from bitrank.service import images
out = io.BytesIO()
Image.new("L", (int(sys.argv[1]), int(sys.argv[2]))).save(out, "PNG")
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
images.digit_vector(images.decode(out.getvalue()))
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


@pytest.mark.parametrize(("width", "height"), [(4000, 4000), (16_384, 976)])
def test_the_largest_pictures_take_little_memory(width, height):
    command = [sys.executable, "-c", MEASURE, str(width), str(height)]
    kilobytes = int(subprocess.run(command, capture_output=True, text=True, check=True, timeout=600).stdout)
    assert kilobytes < 150_000


def test_decoding_leaves_the_warnings_of_other_threads_alone(monkeypatch):
    entered, leave = threading.Event(), threading.Event()
    opened = Image.open

    def slow(*arguments, **options):
        entered.set()
        assert leave.wait(120)
        return opened(*arguments, **options)

    monkeypatch.setattr(Image, "open", slow)
    thread = threading.Thread(target=images.decode, args=[images.png(np.zeros((4, 4), np.uint8))])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        thread.start()
        assert entered.wait(120)
        try:
            warnings.warn("of this thread", UserWarning, stacklevel=1)  # an error where a filter leaks
        finally:
            leave.set()
            thread.join()
