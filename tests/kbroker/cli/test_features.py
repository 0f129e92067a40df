"""`kbroker cluster features` on a real broker."""

from tests.fixtures.brokers import MakeBroker
from tests.kbroker.cli.commands import kbroker, rows, succeed

FEATURE = "transaction.version"


def test_features_are_shown_raised_and_lowered(make_broker: MakeBroker) -> None:
    bootstrap = make_broker().bootstrap

    def level() -> int:
        (row,) = rows("cluster", "features", "describe", "-b", bootstrap)
        assert (row["feature"], row["lowest"], row["highest"]) == (FEATURE, 0, 2)
        return int(row["level"])

    assert level() == 0
    said = succeed("cluster", "features", "upgrade", f"{FEATURE}=2", "--dry-run", "-b", bootstrap)
    assert said == f"{FEATURE} could be 2\n"
    assert level() == 0
    assert succeed("cluster", "features", "upgrade", f"{FEATURE}=2", "-b", bootstrap) == f"{FEATURE} is 2\n"
    assert level() == 2
    refused = kbroker("cluster", "features", "upgrade", f"{FEATURE}=3", "-b", bootstrap)
    assert refused.returncode == 1
    assert "transaction.version has the levels 0 to 2, and not 3" in refused.stderr
    succeed("cluster", "features", "downgrade", f"{FEATURE}=0", "-b", bootstrap)
    assert level() == 0
    assert kbroker("cluster", "features", "upgrade", FEATURE, "-b", bootstrap).returncode == 2
