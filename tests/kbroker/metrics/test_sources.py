"""The numbers of a broker's state are Kafka's."""

from kbroker.metrics.sources import BrokerState


def test_states_have_the_numbers_that_kafka_gives_them() -> None:
    assert [state.value for state in BrokerState] == [0, 1, 2, 3, 6, 7]
