from kbroker.cli import COMMANDS
from kbroker.cli.commands_page import page


def test_every_command_is_told_with_its_options_and_examples() -> None:
    told = page()
    for name in COMMANDS:
        assert f"\n## {name}\n" in told
    assert "\n### group reset\n" in told
    assert "    kbroker group reset billing --to @-1h --dry-run\n" in told
    assert "| `--to start\\|end\\|N\\|-N\\|@TIME` | Where to go on" in told
    assert "\n`kbroker verify` takes:\n" in told
