from kbroker.page.page import see_other
from tests.kbroker.page.visiting import visiting


async def test_every_view_says_whether_it_may_change_anything() -> None:
    async with visiting("127.0.0.1:1") as visitor:
        assert "read only" in (await visitor.get("/login")).text
    async with visiting("127.0.0.1:1", allow_writes=True) as visitor:
        assert "writes allowed" in (await visitor.get("/login")).text


async def test_a_notice_is_one_of_ours_whatever_the_address_says() -> None:
    async with visiting("127.0.0.1:1") as visitor:
        assert "Changed." in await visitor.see("/login?done=changed")
        assert "call this number" not in await visitor.see("/login?done=call+this+number")


def test_after_a_change_the_browser_asks_anew() -> None:
    answer = see_other("/topics")
    assert (answer.status_code, answer.headers["location"]) == (303, "/topics")
