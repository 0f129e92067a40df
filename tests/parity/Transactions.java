import java.io.BufferedReader;
import java.io.File;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import kafka.log.UnifiedLog;
import kafka.server.BrokerTopicStats;
import org.apache.kafka.common.record.MemoryRecords;
import org.apache.kafka.common.utils.Exit;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.server.util.KafkaScheduler;
import org.apache.kafka.storage.internals.log.AbortedTxn;
import org.apache.kafka.storage.internals.log.LogConfig;
import org.apache.kafka.storage.internals.log.LogDirFailureChannel;
import org.apache.kafka.storage.internals.log.LogOffsetsListener;
import org.apache.kafka.storage.internals.log.LogSegment;
import org.apache.kafka.storage.internals.log.ProducerStateManagerConfig;
import org.apache.kafka.storage.internals.log.TxnIndexSearchResult;
import scala.Option;

/**
 * Kafka's own log opens a partition's folder after an unclean stop, takes batches, and closes it.
 *
 * Arguments: folder, segment.bytes, index.interval.bytes, the offset to cut the log at first (-1: nowhere); standard
 * input: batches, hexadecimal, one in each line. Prints "stable HIGH-WATERMARK OFFSET" for each high watermark from
 * where the appends begin, then "aborted FROM UPPER producer:first …" for each range of offsets that has any.
 */
public class Transactions {
    public static void main(String[] arguments) throws Exception {
        KafkaScheduler scheduler = new KafkaScheduler(1);
        scheduler.startup();
        LogConfig config = new LogConfig(Map.of("segment.bytes", arguments[1], "index.interval.bytes", arguments[2]));
        UnifiedLog log = UnifiedLog.apply(
            new File(arguments[0]), config, 0L, 0L, scheduler, new BrokerTopicStats(false), Time.SYSTEM, 900000,
            new ProducerStateManagerConfig(Integer.MAX_VALUE, false), 600000, new LogDirFailureChannel(1), false,
            Option.empty(), true, new ConcurrentHashMap<>(), false, LogOffsetsListener.NO_OP_OFFSETS_LISTENER);
        if (!arguments[3].equals("-1")) {
            log.updateHighWatermark(Long.parseLong(arguments[3]));
            log.truncateTo(Long.parseLong(arguments[3]));
        }
        long begin = log.logEndOffset();
        BufferedReader batches = new BufferedReader(new InputStreamReader(System.in));
        for (String line = batches.readLine(); line != null; line = batches.readLine()) {
            byte[] bytes = HexFormat.of().parseHex(line);
            log.appendAsFollower(MemoryRecords.readableRecords(ByteBuffer.wrap(bytes)), Integer.MAX_VALUE);
        }
        long end = log.logEndOffset();
        for (long offset = begin; offset <= end; offset++) {
            log.updateHighWatermark(offset);
            System.out.println("stable " + offset + " " + log.lastStableOffset());
        }
        for (long from = 0; from < end; from++) {
            for (long upper = from + 1; upper <= end; upper++) {
                List<AbortedTxn> found = new ArrayList<>();
                long first = floor(log, from);
                for (LogSegment each : log.logSegments()) {
                    if (each.baseOffset() < first) {
                        continue;
                    }
                    TxnIndexSearchResult result = each.collectAbortedTxns(from, upper);
                    found.addAll(result.abortedTransactions);
                    if (result.isComplete) {
                        break;
                    }
                }
                if (!found.isEmpty()) {
                    StringBuilder line = new StringBuilder("aborted " + from + " " + upper);
                    for (AbortedTxn each : found) {
                        line.append(" ").append(each.producerId()).append(":").append(each.firstOffset());
                    }
                    System.out.println(line);
                }
            }
        }
        log.close();
        Exit.exit(0);
    }

    private static long floor(UnifiedLog log, long offset) {
        long found = 0;
        for (LogSegment each : log.logSegments()) {
            if (each.baseOffset() <= offset) {
                found = each.baseOffset();
            }
        }
        return found;
    }
}
