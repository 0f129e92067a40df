"""Names of files and folders."""

import pytest

from kbroker.segment.names import file_name, marked_folder_name, parse_file_name, parse_folder_name


def test_file_names_have_twenty_digits() -> None:
    assert file_name(368769, ".log") == "00000000000000368769.log"
    assert parse_file_name("00000000000000368769.index.swap") == (368769, ".index", ".swap")


@pytest.mark.parametrize("name", ["1.log", "00000000000000368769.txt", "x", "00000000000000368769.log.tmp"])
def test_other_files_are_none_of_ours(name: str) -> None:
    assert parse_file_name(name) is None


def test_the_partition_stands_behind_the_last_dash() -> None:
    assert parse_folder_name("a-b-12") == ("a-b", 12, "")
    assert parse_folder_name("a.0123456789abcdef0123456789abcdef-7") == ("a.0123456789abcdef0123456789abcdef", 7, "")
    assert parse_folder_name("lost+found") is None


def test_marked_folders_are_cut_to_what_a_file_system_takes() -> None:
    name = marked_folder_name("t" * 249, 12, "delete")
    assert len(name) == 255
    parsed = parse_folder_name(name)
    assert parsed is not None
    assert (parsed.partition, parsed.mark) == (12, "delete")
