import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.util.Properties;
import java.util.concurrent.Semaphore;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * An idempotent producer with acks=all that sends numbered values round the partitions until its input ends.
 *
 * Arguments: bootstrap topic partitions name pause-ms, then producer properties key=value. Prints a line for each
 * record: "sent NUMBER" before it goes out, "acknowledged NUMBER PARTITION OFFSET" or "failed NUMBER WHY" afterwards.
 */
public class Load {
    private static final int MOST_IN_FLIGHT = 1000;
    private static final int VALUE_BYTES = 300;
    private static volatile boolean ended;

    public static void main(String[] arguments) throws Exception {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", arguments[0]);
        properties.put("key.serializer", ByteArraySerializer.class.getName());
        properties.put("value.serializer", ByteArraySerializer.class.getName());
        properties.put("acks", "all");
        properties.put("enable.idempotence", "true");
        properties.put("linger.ms", "1");
        properties.put("max.block.ms", "120000");
        properties.put("request.timeout.ms", "5000");
        properties.put("reconnect.backoff.max.ms", "200");
        for (int at = 5; at < arguments.length; at++) {
            String[] pair = arguments[at].split("=", 2);
            properties.put(pair[0], pair[1]);
        }
        Thread input = new Thread(Load::waitForEnd);
        input.setDaemon(true);
        input.start();
        send(properties, arguments[1], Integer.parseInt(arguments[2]), arguments[3], Long.parseLong(arguments[4]));
    }

    private static void send(Properties properties, String topic, int partitions, String name, long pauseMs)
            throws Exception {
        Semaphore room = new Semaphore(MOST_IN_FLIGHT);
        try (KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(properties)) {
            for (int number = 0; !ended; number++) {
                int mine = number;
                room.acquire();
                print("sent " + mine);
                byte[] value = value(name, mine);
                producer.send(new ProducerRecord<>(topic, mine % partitions, null, value), (metadata, error) -> {
                    room.release();
                    print(error == null
                        ? "acknowledged " + mine + " " + metadata.partition() + " " + metadata.offset()
                        : "failed " + mine + " " + error);
                });
                if (number % 4 == 3) {
                    Thread.sleep(pauseMs);
                }
            }
            producer.flush();
        }
    }

    private static void waitForEnd() {
        try {
            System.in.readAllBytes();
        } catch (IOException error) {
            print("failed -1 " + error);
        }
        ended = true;
    }

    private static byte[] value(String name, int number) {
        StringBuilder text = new StringBuilder(String.format("%s-%07d-", name, number));
        while (text.length() < VALUE_BYTES) {
            text.append('.');
        }
        return text.toString().getBytes(StandardCharsets.US_ASCII);
    }

    private static synchronized void print(String line) {
        System.out.println(line);
    }
}
