import pickle

from kbroker.client.error_base import AbortableError
from kbroker.client.errors import DeliveryTimeout, FencedError, FencedInstanceIdError, ProducerFencedError
from kbroker.client.errors import TransactionAbortableError as TransactionAbortable
from kbroker.protocol.errors import ErrorCode


def test_a_pickled_error_keeps_its_class() -> None:
    error = DeliveryTimeout("too late", topic="t", partition=1)
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), str(again), again.partition) == (DeliveryTimeout, "REQUEST_TIMED_OUT: t-1: too late", 1)


def test_errors_with_the_same_remedy_have_a_base_in_common() -> None:
    assert issubclass(ProducerFencedError, FencedError)
    assert issubclass(FencedInstanceIdError, FencedError)
    assert isinstance(TransactionAbortable(ErrorCode.TRANSACTION_ABORTABLE), AbortableError)
