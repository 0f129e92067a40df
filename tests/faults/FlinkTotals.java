import java.time.Duration;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.functions.RichMapFunction;
import org.apache.flink.api.common.serialization.SimpleStringSchema;
import org.apache.flink.api.common.state.ValueState;
import org.apache.flink.api.common.state.ValueStateDescriptor;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.connector.base.DeliveryGuarantee;
import org.apache.flink.connector.kafka.sink.KafkaRecordSerializationSchema;
import org.apache.flink.connector.kafka.sink.KafkaSink;
import org.apache.flink.connector.kafka.source.KafkaSource;
import org.apache.flink.connector.kafka.source.enumerator.initializer.OffsetsInitializer;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.kafka.clients.consumer.OffsetResetStrategy;

/**
 * Counts lines exactly once: each line becomes "line total", where the total is of all lines that begin with the same letter.
 *
 * Arguments: bootstrap prefix checkpoints input output [checkpoint to go on from]. Ends when it is killed.
 */
public class FlinkTotals {
    static class Total extends RichMapFunction<String, String> {
        private transient ValueState<Integer> total;

        @Override
        public void open(Configuration unused) {
            total = getRuntimeContext().getState(new ValueStateDescriptor<>("total", Integer.class));
        }

        @Override
        public String map(String line) throws Exception {
            int next = total.value() == null ? 1 : total.value() + 1;
            total.update(next);
            return line + " " + next;
        }
    }

    public static void main(String[] arguments) throws Exception {
        Configuration settings = new Configuration();
        settings.setString("state.checkpoints.dir", arguments[2]);
        settings.setString("execution.checkpointing.externalized-checkpoint-retention", "RETAIN_ON_CANCELLATION");
        settings.setString("execution.checkpointing.tolerable-failed-checkpoints", "1000");
        settings.setString("state.checkpoints.num-retained", "5");
        settings.setString("restart-strategy.type", "fixed-delay");
        settings.setString("restart-strategy.fixed-delay.attempts", "1000");
        settings.setString("restart-strategy.fixed-delay.delay", "200 ms");
        settings.setString("taskmanager.memory.managed.size", "32m");
        settings.setString("taskmanager.memory.network.min", "16m");
        settings.setString("taskmanager.memory.network.max", "16m");
        if (arguments.length > 5) {
            settings.setString("execution.savepoint.path", arguments[5]);
        }
        StreamExecutionEnvironment environment = StreamExecutionEnvironment.createLocalEnvironment(2, settings);
        environment.enableCheckpointing(Duration.ofMillis(300).toMillis());
        KafkaSource<String> source = KafkaSource.<String>builder()
            .setBootstrapServers(arguments[0])
            .setGroupId(arguments[1])
            .setTopics(arguments[3])
            .setStartingOffsets(OffsetsInitializer.committedOffsets(OffsetResetStrategy.EARLIEST))
            .setProperty("isolation.level", "read_committed")
            .setProperty("max.poll.records", "50")
            .setValueOnlyDeserializer(new SimpleStringSchema())
            .build();
        KafkaSink<String> sink = KafkaSink.<String>builder()
            .setBootstrapServers(arguments[0])
            .setDeliveryGuarantee(DeliveryGuarantee.EXACTLY_ONCE)
            .setTransactionalIdPrefix(arguments[1])
            .setProperty("transaction.timeout.ms", "60000")
            .setRecordSerializer(KafkaRecordSerializationSchema.builder()
                .setTopic(arguments[4]).setValueSerializationSchema(new SimpleStringSchema()).build())
            .build();
        environment.fromSource(source, WatermarkStrategy.noWatermarks(), "lines")
            .map(line -> {
                Thread.sleep(2); // so that there is something to kill
                return line;
            })
            .keyBy(line -> line.substring(0, 1))
            .map(new Total())
            .sinkTo(sink);
        environment.execute();
    }
}
