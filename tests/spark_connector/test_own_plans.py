"""The rule that gives each use of a frame its plan; what it is good for stands in tests/spark/test_filters.py."""

import importlib
import pickle
import re
from types import SimpleNamespace
from typing import Any

import pytest

from kbroker import spark_connector
from kbroker.spark_connector.own_plans import CONNECT_PLAN_CACHE, NAME, RULE


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_session_gets_the_rule_once(spark: Any) -> None:
    for _ in range(2):
        assert spark_connector.enable(spark) is spark
    try:
        session = spark._jsparkSession
        rules = session.extensions().buildOptimizerRules(session).mkString(" ")
        assert rules.count(NAME) == 1
        assert spark.conf.get(spark_connector.FILTER_PUSHDOWN) == "true"
    finally:
        spark.conf.set(spark_connector.FILTER_PUSHDOWN, "false")


def test_a_session_without_a_jvm_of_its_own_keeps_no_plans_of_frames_and_pushes_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    conf: dict[str, str] = {}
    remote: Any = SimpleNamespace(version="4.3.0", conf=SimpleNamespace(set=conf.__setitem__))
    assert spark_connector.enable(remote) is remote
    assert conf == {CONNECT_PLAN_CACHE: "false"}
    assert "filters are not pushed" in caplog.text


def test_the_mark_at_the_end_of_a_pickle_is_an_attribute_of_the_source() -> None:
    [escaped] = re.findall(r'mark = "(.*?)"', RULE)
    mark = escaped.encode().decode("unicode_escape").encode("latin-1")
    source = importlib.import_module("kbroker.spark_connector.source").KbrokerDataSource({"subscribe": "t"})
    pickled = pickle.dumps(source)
    assert not pickle.loads(pickled).takes_filters
    marked = pickle.loads(pickled[:-1] + mark)
    assert marked.takes_filters
    assert marked.options == {"subscribe": "t"}
