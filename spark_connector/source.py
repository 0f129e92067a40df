"""The data source as Spark sees it: its name, its schema, its readers and writers; nothing else."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource, DataSourceStreamReader

from kbroker.spark_connector.columns import plan_columns, schema_ddl
from kbroker.spark_connector.options import OptionError
from kbroker.spark_connector.read_options import ReadOptions, read_options
from kbroker.spark_connector.worker_process import settle_in

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from kbroker.spark_connector.batch_reader import BatchReader
    from kbroker.spark_connector.exactly_once_writer import ExactlyOnceBatchWriter, ExactlyOnceStreamWriter
    from kbroker.spark_connector.sink_layout import SinkLayout
    from kbroker.spark_connector.stream_reader_41 import StreamReader41
    from kbroker.spark_connector.write_options import WriteOptions
    from kbroker.spark_connector.writer import BatchWriter, StreamWriter


class KbrokerDataSource(DataSource):
    """`spark.read.format("kbroker")`: topics as DataFrames, with the options and columns of Spark's Kafka source."""

    takes_filters = False
    """Set where Spark pushes filters and plans each use of a frame by itself; see own_plans."""

    @classmethod
    def name(cls) -> str:
        """Return the format's short name; Spark asks for it first, in a worker of its own."""
        settle_in()
        return "kbroker"

    def schema(self) -> str:
        """Return the columns; `headers` only with includeHeaders=true, as in Spark's Kafka source."""
        options = read_options(self.options, streaming=None)
        settle_in()
        key = _struct_type("key", options.key_format, options.key_schema, options)
        return schema_ddl(options, key, _struct_type("value", options.value_format, options.value_schema, options))

    def reader(self, schema: StructType) -> BatchReader:
        """Check the options and return the reader of one batch query."""
        from kbroker.spark_connector.batch_reader import BatchReader, PushingBatchReader

        settle_in()
        options = read_options(self.options)
        plan = plan_columns(schema, options)
        return PushingBatchReader(options, plan) if self.takes_filters else BatchReader(options, plan)

    def streamReader(self, schema: StructType) -> StreamReader41:
        """Check the options and return the reader of one streaming query."""
        options = read_options(self.options, streaming=True)
        plan = plan_columns(schema, options)
        if not hasattr(DataSourceStreamReader, "getDefaultReadLimit"):
            from kbroker.spark_connector.stream_reader_41 import StreamReader41

            return StreamReader41(options, plan)
        from kbroker.spark_connector.stream_reader import StreamReader

        return StreamReader(options, plan)

    def writer(self, schema: StructType, overwrite: bool) -> BatchWriter | ExactlyOnceBatchWriter:
        """Check options and columns and return the writer of one frame."""
        from kbroker.spark_connector.exactly_once_writer import ExactlyOnceBatchWriter
        from kbroker.spark_connector.writer import BatchWriter

        if overwrite:
            raise OptionError('a topic can only be appended to: mode("append") instead of mode("overwrite")')
        options, layout = self._sink(schema, streaming=False)
        return ExactlyOnceBatchWriter(options, layout) if options.exactly_once else BatchWriter(options, layout)

    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamWriter | ExactlyOnceStreamWriter:
        """Check options and columns and return the writer of one streaming query; output mode complete appends, too."""
        from kbroker.spark_connector.exactly_once_writer import ExactlyOnceStreamWriter
        from kbroker.spark_connector.writer import StreamWriter

        options, layout = self._sink(schema, streaming=True)
        return ExactlyOnceStreamWriter(options, layout) if options.exactly_once else StreamWriter(options, layout)

    def _sink(self, schema: StructType, *, streaming: bool) -> tuple[WriteOptions, SinkLayout]:
        from kbroker.spark_connector.sink_layout import sink_layout
        from kbroker.spark_connector.write_options import write_options

        settle_in()
        options = write_options(self.options, streaming=streaming)
        return options, sink_layout(schema, options)


def _struct_type(column: str, kind: str, given: str, options: ReadOptions) -> str:
    """Return the type of parsed keys or values: as given, or as a sample of the topic or the registry shows it."""
    if kind == "avro":
        return _avro_type(column, given, options)
    if kind != "json":
        return ""
    if given:
        return f"struct<{given}>"
    from kbroker.spark_connector.json_inference import ddl, infer_struct
    from kbroker.spark_connector.planning import sample

    found = infer_struct(sample(options, column))
    if found is None:
        raise OptionError(f"{column}Schema is needed: no JSON object among the newest {column}s shows it")
    return ddl(found)


def _avro_type(column: str, given: str, options: ReadOptions) -> str:
    from kbroker.client.avro import AvroError, compile_schema
    from kbroker.client.schema_registry import RegistryError, registry_at

    topics = options.selection.subscribe
    try:
        if not given and options.registry and len(topics) == 1:
            given = registry_at(options.registry).latest(f"{topics[0]}-{column}")[1]
        if given:
            return compile_schema(given).spark_type
    except (AvroError, RegistryError) as error:
        raise OptionError(f"{column}Schema: {error}") from error
    raise OptionError(f"{column}Schema is needed: an Avro schema; or schemaRegistry and one topic in subscribe")
