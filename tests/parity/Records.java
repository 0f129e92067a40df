import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HexFormat;
import java.util.List;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.record.CompressionType;
import org.apache.kafka.common.record.MemoryRecords;
import org.apache.kafka.common.record.MemoryRecordsBuilder;
import org.apache.kafka.common.record.MutableRecordBatch;
import org.apache.kafka.common.record.Record;
import org.apache.kafka.common.record.RecordBatch;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.utils.Utils;

/**
 * Kafka's own record classes as a filter. A record is a line: timestamp key value [header value]...; bytes are
 * x and their hexadecimal digits, null is a dash.
 *
 *     read           lines of batches in hexadecimal -> their records, a line "batch CODEC OFFSET" before each batch
 *     write CODEC    records -> one batch in hexadecimal
 *     write CODEC M  records (without headers) -> messages of magic M, 0 or 1, from offset 40 on
 *     murmur2        keys -> their hashes
 */
public class Records {
    public static void main(String[] arguments) throws Exception {
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.US_ASCII));
        List<String> lines = input.lines().toList();
        StringBuilder output = new StringBuilder();
        switch (arguments[0]) {
            case "read" -> lines.forEach(line -> read(HexFormat.of().parseHex(line), output));
            case "write" -> write(CompressionType.forName(arguments[1]), magicIn(arguments), lines, output);
            case "murmur2" -> lines.forEach(line -> output.append(Utils.murmur2(bytes(line))).append('\n'));
            default -> throw new IllegalArgumentException(arguments[0]);
        }
        System.out.print(output);
    }

    private static void read(byte[] stream, StringBuilder output) {
        for (MutableRecordBatch batch : MemoryRecords.readableRecords(ByteBuffer.wrap(stream)).batches()) {
            batch.ensureValid();
            output.append("batch ").append(batch.compressionType().name).append(' ').append(batch.baseOffset());
            output.append('\n');
            for (Record record : batch) {
                record.ensureValid();
                output.append(record.timestamp());
                output.append(' ').append(text(record.key())).append(' ').append(text(record.value()));
                for (Header header : record.headers()) {
                    output.append(' ').append(text(ByteBuffer.wrap(header.key().getBytes(StandardCharsets.UTF_8))));
                    output.append(' ').append(header.value() == null ? "-" : text(ByteBuffer.wrap(header.value())));
                }
                output.append('\n');
            }
        }
    }

    private static byte magicIn(String[] arguments) {
        return arguments.length > 2 ? Byte.parseByte(arguments[2]) : RecordBatch.CURRENT_MAGIC_VALUE;
    }

    private static void write(CompressionType codec, byte magic, List<String> lines, StringBuilder output) {
        MemoryRecordsBuilder builder = MemoryRecords.builder(
            ByteBuffer.allocate(1024), magic, Compression.of(codec).build(),
            magic == 0 ? TimestampType.NO_TIMESTAMP_TYPE : TimestampType.CREATE_TIME, magic < 2 ? 40L : 0L);
        for (String line : lines) {
            String[] words = line.split(" ");
            List<Header> headers = new ArrayList<>();
            for (int at = 3; at < words.length; at += 2) {
                String key = new String(bytes(words[at]), StandardCharsets.UTF_8);
                headers.add(new RecordHeader(key, bytes(words[at + 1])));
            }
            builder.append(
                Long.parseLong(words[0]), bytes(words[1]), bytes(words[2]), headers.toArray(new Header[0]));
        }
        ByteBuffer batch = builder.build().buffer();
        output.append(text(batch).substring(1)).append('\n');
    }

    private static byte[] bytes(String word) {
        return word.equals("-") ? null : HexFormat.of().parseHex(word.substring(1));
    }

    private static String text(ByteBuffer bytes) {
        return bytes == null ? "-" : "x" + HexFormat.of().formatHex(Utils.toArray(bytes.duplicate()));
    }
}
