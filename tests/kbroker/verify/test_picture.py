"""Tests for kbroker.verify.picture: a PNG, and a page that needs nothing else."""

import pytest

from kbroker.verify.checker import Settings, judge
from kbroker.verify.picture import draw_picture, make_page
from tests.kbroker.verify.written import Written, sent


@pytest.mark.slow
def test_the_page_holds_the_picture_and_the_report() -> None:
    history = Written()
    history.do(0, "send", sent("<x>", [0, 1]))
    history.end("nemesis", "cut", [], "info")
    history.do(1, "poll", [["poll", {"<x>": [[0, 2]]}]])
    judgement = judge(history.columns, Settings())
    assert judgement.availability.timeline is not None
    picture = draw_picture(judgement.availability.timeline)
    assert picture.startswith(b"\x89PNG")
    page = make_page(judgement, picture)
    assert "data:image/png;base64,iVBOR" in page
    assert "&lt;x&gt; offset 0" in page
    assert "<x>" not in page
    assert "http" not in page.partition("<pre>")[0]
