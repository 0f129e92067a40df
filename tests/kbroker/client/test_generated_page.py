"""Generated pages are printed, or compared with the file that is there."""

from pathlib import Path

import pytest

from kbroker.client.generated_page import print_or_check


def test_the_page_is_printed_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    assert print_or_check(lambda: "# Page\n", []) == 0
    assert capsys.readouterr().out == "# Page\n"


@pytest.mark.parametrize(("text", "status"), [("# Page\n", 0), ("# Page, old\n", 1), (None, 1)])
def test_a_file_that_is_stale_or_missing_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str | None, status: int
) -> None:
    file = tmp_path / "page.md"
    if text is not None:
        file.write_text(text)
    assert print_or_check(lambda: "# Page\n", ["--check", str(file)]) == status
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err == (f"{file} is not up to date: write it anew with make docs\n" if status else "")
