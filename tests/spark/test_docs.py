"""The snippets of docs/spark*.md, and README.md's of Spark, run, page after page, against a real broker."""

import re
from pathlib import Path
from typing import Any

import pytest

from kbroker import Admin
from kbroker.dev.broker_process import BrokerProcess
from kbroker.spark_connector.read_options import READ_OPTIONS
from kbroker.spark_connector.write_options import OF_SPARK, WRITE_OPTIONS
from tests.kbroker.cli.pages import indented_python_of
from tests.spark.queries import again_where_too_slow

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
DOCS = Path(__file__).parents[2] / "docs"
START = "ten-minutes.md"
PAGES = ("spark-batch.md", "spark-streaming.md", "spark-enrichment.md", "spark-replay.md", "spark-migration.md")
TOPICS = ["departures", "flights", "named-flights", "copied-flights"]


def test_every_snippet_of_the_pages_runs(
    spark: Any, broker: BrokerProcess, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    names: dict[str, Any] = {"BOOTSTRAP": broker.bootstrap, "FOLDER": str(tmp_path), "spark": spark}

    def run(snippet: str, page: str) -> None:
        code = compile(snippet, page, "exec")
        again_where_too_slow(lambda: exec(code, names))

    try:
        for page in (START, *PAGES):
            for snippet in re.findall(r"```python\n(.*?)```", (DOCS / page).read_text(), re.DOTALL):
                run(snippet, page)
        [snippet] = [code for code in indented_python_of((DOCS.parent / "README.md").read_text()) if "spark." in code]
        run(snippet.replace("127.0.0.1:9092", broker.bootstrap), "README.md")
    finally:
        spark.conf.set("spark.sql.python.filterPushdown.enabled", "false")
        with Admin(broker.bootstrap) as admin:
            admin.delete_topics([topic for topic in TOPICS if topic in admin.list_topics()])
    printed = capfd.readouterr().out
    for said in ("PushedFilters: [", "8 tasks", "1000 rows", "United", "|     AA|", "1000 records of the last hour"):
        assert said in printed


def test_the_overview_names_every_page_and_option() -> None:
    overview = (DOCS / "spark.md").read_text()
    silent = [page for page in PAGES if f"({page})" not in overview]
    options = {*READ_OPTIONS, *WRITE_OPTIONS} - {*OF_SPARK, "groupIdPrefix"}
    silent += [name for name in options if f"`{name}`" not in overview]
    assert not silent
