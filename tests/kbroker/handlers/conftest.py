"""The same played broker as for the replica room."""

from tests.kbroker.replica.conftest import played

__all__ = ["played"]
