import com.sun.management.OperatingSystemMXBean;
import java.io.File;
import java.lang.management.ManagementFactory;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import kafka.log.Cleaner;
import kafka.log.LogToClean;
import kafka.log.UnifiedLog;
import kafka.server.BrokerTopicStats;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.server.util.KafkaScheduler;
import org.apache.kafka.storage.internals.log.LogConfig;
import org.apache.kafka.storage.internals.log.LogDirFailureChannel;
import org.apache.kafka.storage.internals.log.LogOffsetsListener;
import org.apache.kafka.storage.internals.log.LogSegment;
import org.apache.kafka.storage.internals.log.ProducerStateManagerConfig;
import org.apache.kafka.storage.internals.log.SkimpyOffsetMap;
import org.apache.kafka.storage.internals.utils.Throttler;
import scala.Function1;
import scala.Option;
import scala.runtime.BoxedUnit;

/** Compacts table-0 in a data directory with Kafka's own cleaner; prints processor seconds, seconds, bytes kept. */
public class CompactLog {
    public static void main(String[] arguments) throws Exception {
        KafkaScheduler scheduler = new KafkaScheduler(1);
        scheduler.startup();
        LogConfig config = new LogConfig(Map.of("cleanup.policy", "compact", "segment.bytes", arguments[1]));
        UnifiedLog log = UnifiedLog.apply(
            new File(arguments[0], "table-0"), config, 0L, 0L, scheduler, new BrokerTopicStats(false), Time.SYSTEM, 900000,
            new ProducerStateManagerConfig(86400000, false), 600000, new LogDirFailureChannel(1), true, Option.empty(),
            true, new ConcurrentHashMap<>(), false, LogOffsetsListener.NO_OP_OFFSETS_LISTENER);
        log.updateHighWatermark(log.logEndOffset());
        Throttler throttler = new Throttler(Double.MAX_VALUE, 300, "io", "bytes", Time.SYSTEM);
        Function1<TopicPartition, BoxedUnit> goOn = partition -> BoxedUnit.UNIT;
        Cleaner cleaner = new Cleaner(
            0, new SkimpyOffsetMap(134217728), 262144, 1048588, 0.9, throttler, Time.SYSTEM, goOn);
        long end = log.activeSegment().baseOffset();
        LogToClean plan = new LogToClean(log.topicPartition(), log, 0L, end, false);
        OperatingSystemMXBean system = ManagementFactory.getPlatformMXBean(OperatingSystemMXBean.class);
        long used = system.getProcessCpuTime();
        long begun = System.nanoTime();
        cleaner.clean(plan);
        double seconds = (System.nanoTime() - begun) / 1e9;
        double processor = (system.getProcessCpuTime() - used) / 1e9;
        long kept = 0;
        for (LogSegment segment : scala.jdk.javaapi.CollectionConverters.asJava(log.logSegments(0L, end))) {
            kept += segment.size();
        }
        System.out.printf("%f %f %d%n", processor, seconds, kept);
        System.exit(0);
    }
}
