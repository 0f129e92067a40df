// Reads all partitions of a topic from their beginning with the Java consumer, without a group: no coordinator needed.
// Arguments: bootstrap topic messages. Prints: messages bytes milliseconds
import java.time.Duration;
import java.util.*;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

public class AssignConsumer {
    public static void main(String[] arguments) {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", arguments[0]);
        properties.put("key.deserializer", ByteArrayDeserializer.class.getName());
        properties.put("value.deserializer", ByteArrayDeserializer.class.getName());
        properties.put("enable.auto.commit", "false");
        properties.put("max.poll.records", "5000");
        properties.put("receive.buffer.bytes", "2097152");
        long wanted = Long.parseLong(arguments[2]);
        try (KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(properties)) {
            List<TopicPartition> partitions = new ArrayList<>();
            consumer.partitionsFor(arguments[1]).forEach(p -> partitions.add(new TopicPartition(p.topic(), p.partition())));
            consumer.assign(partitions);
            consumer.seekToBeginning(partitions);
            long messages = 0, bytes = 0, began = System.nanoTime(), lastProgress = began;
            while (messages < wanted) {
                ConsumerRecords<byte[], byte[]> records = consumer.poll(Duration.ofMillis(500));
                for (ConsumerRecord<byte[], byte[]> record : records) { messages++; bytes += record.serializedValueSize(); }
                if (!records.isEmpty()) lastProgress = System.nanoTime();
                if (System.nanoTime() - lastProgress > 30_000_000_000L) throw new RuntimeException("no record for 30 s after " + messages);
            }
            System.out.println(messages + " " + bytes + " " + (System.nanoTime() - began) / 1_000_000);
        }
    }
}
