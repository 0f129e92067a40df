"""The verdict about a history: columns in, findings out. No input or output but the history's own file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kbroker.verify.admin import check_admin
from kbroker.verify.anomalies import Finding, is_allowed
from kbroker.verify.availability import Availability, measure_availability
from kbroker.verify.columns import Columns
from kbroker.verify.compaction import check_compaction
from kbroker.verify.cycles import check_cycles
from kbroker.verify.groups import check_groups
from kbroker.verify.history import HISTORY_FILE, STALLED, settings_of
from kbroker.verify.order import check_order
from kbroker.verify.reading import read_columns
from kbroker.verify.versions import Versions, find_versions
from kbroker.verify.visibility import check_visibility

COMPLETE = "complete"
VALID, ANOMALY, UNKNOWN = "valid", "anomaly", "unknown"
EXIT_STATUS = {VALID: 0, ANOMALY: 1, UNKNOWN: 2}


@dataclass(frozen=True, slots=True)
class Settings:
    """What has to be known of a test to judge its history."""

    workload: str = "append"
    isolation: str = "read_committed"
    final_phase: str = COMPLETE
    """`complete`: each partition was read to its end; else why it was not."""
    failure: str = ""
    """What ended the test before its time: a mistake of the test's own, not of the cluster."""

    @property
    def is_read_to_the_end(self) -> bool:
        """Whether what nobody has read by now is missing: also where nothing more came, though nothing failed."""
        return self.final_phase == COMPLETE or self.final_phase.startswith(STALLED)

    @classmethod
    def of(cls, known: Mapping[str, Any]) -> Settings:
        """Read them from test.json; a history of which nothing is known counts as a whole one."""
        return cls(
            workload=str(known.get("workload", "append")),
            isolation=str(known.get("isolation", "read_committed")),
            final_phase=str(known.get("final_phase", COMPLETE)),
            failure=str(known.get("failure", "")),
        )


@dataclass(slots=True)
class Judgement:
    """All that a history says."""

    verdict: str
    reason: str
    """Why it is not known, or in one sentence what was found."""
    anomalies: list[Finding]
    allowed: list[Finding]
    """What Kafka's model permits."""
    availability: Availability
    columns: Columns = field(repr=False)
    versions: Versions = field(repr=False)


def judge_folder(folder: Path) -> Judgement:
    """Judge the history of a folder."""
    return judge(read_columns(folder / HISTORY_FILE), Settings.of(settings_of(folder)))


def judge(columns: Columns, settings: Settings) -> Judgement:
    """Judge a history."""
    is_compacted = settings.workload == "compact"
    has_final_reads = bool(columns.operations.final.any())
    versions = find_versions(columns, is_compacted)
    findings = [
        *versions.findings,
        *check_visibility(columns, versions, settings.is_read_to_the_end, has_final_reads),
        *check_order(columns, versions),
        *check_cycles(columns, versions),
        *check_groups(columns, versions),
        *check_compaction(columns, versions),
        *check_admin(columns),
    ]
    anomalies = [each for each in findings if not is_allowed(each.name, settings.isolation)]
    allowed = [each for each in findings if is_allowed(each.name, settings.isolation)]
    verdict, reason = _verdict(columns, versions, settings, anomalies)
    return Judgement(verdict, reason, anomalies, allowed, measure_availability(columns, versions), columns, versions)


def _verdict(columns: Columns, versions: Versions, settings: Settings, anomalies: list[Finding]) -> tuple[str, str]:
    if anomalies:
        return ANOMALY, ", ".join(f"{each.name} ({each.count})" for each in anomalies)
    if settings.failure:
        return UNKNOWN, f"the test itself failed: {settings.failure}"
    if not versions.must_hold.any():
        return UNKNOWN, "nothing was acknowledged"
    if not len(columns.reads):
        return UNKNOWN, "nothing was read"
    if settings.final_phase != COMPLETE:
        return UNKNOWN, f"partitions were not read to their ends: {settings.final_phase}"
    return VALID, "nothing was found that Kafka does not allow"
