import pytest

from kbroker.coordinator.append_errors import commit_error, consumer_group_error, group_error, transaction_error
from kbroker.protocol.errors import ErrorCode


@pytest.mark.parametrize(
    ("appended", "commit", "group", "transaction"),
    [
        *[(0, 0, 0, 0), (3, 15, 15, 15), (19, 15, 15, 15), (20, 15, 15, 15), (6, 16, 16, 16), (56, 16, 16, 16)],
        *[
            (7, 7, 27, 15),
            (10, 28, -1, -1),
            (18, 28, -1, -1),
            (4, 28, -1, -1),
            (13, 14, 13, 13),
            (2, 2, 2, 2),
            (55, 15, 55, 55),
        ],
    ],
)
def test_append_errors_become_what_clients_understand(appended: int, commit: int, group: int, transaction: int) -> None:
    assert commit_error(ErrorCode(appended)) == commit
    assert group_error(ErrorCode(appended)) == group
    assert transaction_error(ErrorCode(appended)) == transaction
    assert consumer_group_error(ErrorCode(appended)) == transaction
