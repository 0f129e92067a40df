"""The rule that gives each use of a frame its plan; what it is good for stands in tests/spark/test_filters.py."""

from types import SimpleNamespace
from typing import Any

import pytest

from kbroker import spark_connector
from kbroker.spark_connector.own_plans import NAME, plan_each_use


@pytest.mark.slow
@pytest.mark.xdist_group("spark")
@pytest.mark.timeout(600)
def test_a_session_gets_the_rule_once(spark: Any) -> None:
    for _ in range(2):
        assert spark_connector.enable(spark) is spark
    try:
        session = spark._jsparkSession
        rules = session.extensions().buildOptimizerRules(session).mkString(" ")
        assert rules.count(NAME) <= 1, "none where Spark plans each scan by itself"
        assert spark.conf.get(spark_connector.FILTER_PUSHDOWN) == "true"
    finally:
        spark.conf.set(spark_connector.FILTER_PUSHDOWN, "false")


def test_a_session_without_a_jvm_is_refused() -> None:
    with pytest.raises(RuntimeError, match="cannot be pushed through Spark Connect"):
        plan_each_use(SimpleNamespace(version="4.3.0"))  # type: ignore[arg-type]
