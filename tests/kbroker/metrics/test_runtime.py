"""The process's numbers."""

import gc

import pytest

from kbroker.metrics import runtime
from kbroker.metrics.runtime import Collections
from tests.fixtures.data_path import Played
from tests.kbroker.metrics.scraping import collected, sources_of


@pytest.mark.slow
async def test_the_process_is_told_under_the_names_that_dashboards_ask_for(played: Played) -> None:
    sources = sources_of(played, cluster_id="the-cluster")
    sources.collections = Collections()
    try:
        gc.collect()
        found = collected(runtime.collect, sources)
    finally:
        sources.collections.close()
    assert found.value("process_open_fds") >= 3
    assert found.value("jvm_memory_used_bytes", area="heap") == found.value("process_resident_memory_bytes") > 1 << 20
    assert found.value("jvm_gc_collection_seconds_count", gc="generation 2") >= 1
    assert found.value("kafka_server_kafkaserver_brokerstate") == 3
    assert found.value("kbroker_info", cluster_id="the-cluster", broker_id="1") == 1
    assert all(each >= 0 for each in found.find("kafka_server_kafkaserver_linux_disk_write_bytes"))


@pytest.mark.slow
def test_collections_are_counted_only_while_that_is_wanted() -> None:
    before = len(gc.callbacks)
    counting = Collections()
    gc.collect()
    counting.close()
    gc.collect()
    assert counting.by_generation[2][0] == 1
    assert len(gc.callbacks) == before
