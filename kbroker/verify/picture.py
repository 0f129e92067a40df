"""A picture of a test over time (PNG), and the report as a page that opens by itself (HTML, the picture within)."""

from __future__ import annotations

import base64
import html
import io
from typing import Any

from kbroker.verify.availability import Timeline
from kbroker.verify.checker import ANOMALY, VALID, Judgement
from kbroker.verify.report import report_text

COLOURS = {VALID: "#1a7f37", ANOMALY: "#cf222e"}
UNKNOWN_COLOUR = "#9a6700"
PAGE = """\
<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>kbroker verify: {verdict}</title>
<style>
body {{ font: 15px/1.5 system-ui, sans-serif; margin: 2em auto; max-width: 72em; padding: 0 1em; color: #1f2328 }}
h1 {{ color: {colour} }}
pre {{ background: #f6f8fa; padding: 1em; overflow-x: auto; white-space: pre-wrap }}
img {{ max-width: 100% }}
</style></head>
<body><h1>{verdict}</h1><p>{reason}</p>
<img alt="Rates, lag and faults over time" src="data:image/png;base64,{picture}">
<pre>{report}</pre></body></html>
"""


def draw_picture(timeline: Timeline) -> bytes:
    """A PNG: records per second, records not yet read, failed operations; the faults behind them."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 7), layout="constrained")
    rates, lag, troubles = figure.subplots(3, 1, sharex=True)
    seconds, width = timeline.seconds, timeline.width_s
    _lines(rates, seconds, {"sent": timeline.sent, "read": timeline.read}, 1 / width)
    rates.set_ylabel("records/s")
    _lines(lag, seconds, {"acknowledged, not yet read": timeline.lag}, 1)
    lag.set_ylabel("records")
    _lines(troubles, seconds, {"failed": timeline.failed, "nobody knows": timeline.unknown}, 1 / width)
    troubles.set_ylabel("operations/s")
    troubles.set_xlabel("seconds")
    names = sorted({name for _, _, name in timeline.faults})
    for axes in (rates, lag, troubles):
        for begin, end, name in timeline.faults:
            axes.axvspan(begin, end, color=f"C{names.index(name) % 8 + 2}", alpha=0.15, linewidth=0)
        axes.legend(loc="upper left", fontsize="small")
        axes.set_ylim(bottom=0)
    for begin, _, name in timeline.faults[:60]:
        rates.annotate(name, (begin, 1), xycoords=("data", "axes fraction"), fontsize=6, rotation=90, va="top")
    target = io.BytesIO()
    figure.savefig(target, format="png", dpi=110)
    return target.getvalue()


def _lines(axes: Any, seconds: list[float], series: dict[str, list[int]], factor: float) -> None:
    for name, values in series.items():
        axes.plot(seconds, [value * factor for value in values], label=name, drawstyle="steps-post", linewidth=1)


def make_page(judgement: Judgement, picture: bytes) -> str:
    """The report as HTML that needs nothing else."""
    return PAGE.format(
        verdict=judgement.verdict,
        colour=COLOURS.get(judgement.verdict, UNKNOWN_COLOUR),
        reason=html.escape(judgement.reason),
        picture=base64.b64encode(picture).decode(),
        report=html.escape(report_text(judgement)),
    )
