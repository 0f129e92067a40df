import java.util.Properties;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.errors.TimeoutException;
import org.apache.kafka.common.serialization.StringSerializer;
import org.apache.kafka.common.utils.Exit;

/**
 * Three transactions, each with records for every partition: committed, aborted, committed.
 *
 * Arguments: bootstrap topic partitions. Takes the first of some transactional ids whose coordinator answers; prints
 * "committed TRANSACTION" or "aborted TRANSACTION" after each.
 */
public class Transactions {
    private static final int RECORDS = 30;

    public static void main(String[] arguments) {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", arguments[0]);
        properties.put("key.serializer", StringSerializer.class.getName());
        properties.put("value.serializer", StringSerializer.class.getName());
        properties.put("max.block.ms", "15000");
        for (int number = 0; number < 9; number++) {
            properties.put("transactional.id", "transactions-" + number);
            try (KafkaProducer<String, String> producer = new KafkaProducer<>(properties)) {
                producer.initTransactions();
                run(producer, arguments[1], Integer.parseInt(arguments[2]));
                return;
            } catch (TimeoutException error) {
                System.out.println("nobody coordinates " + number);
            }
        }
        Exit.exit(1);
    }

    private static void run(KafkaProducer<String, String> producer, String topic, int partitions) {
        for (int transaction = 0; transaction < 3; transaction++) {
            producer.beginTransaction();
            for (int number = 0; number < RECORDS; number++) {
                String value = transaction + "-" + number;
                producer.send(new ProducerRecord<>(topic, number % partitions, null, value));
            }
            if (transaction == 1) {
                producer.flush();
                producer.abortTransaction();
                System.out.println("aborted " + transaction);
            } else {
                producer.commitTransaction();
                System.out.println("committed " + transaction);
            }
        }
    }
}
