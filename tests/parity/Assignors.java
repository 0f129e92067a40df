import java.nio.ByteBuffer;
import java.util.*;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.*;
import org.apache.kafka.clients.consumer.internals.*;
import org.apache.kafka.common.*;

/**
 * Kafka's assignors, asked over standard input. A case is lines of words:
 *   case ASSIGNOR | topic NAME RACKS… (one per partition: comma-separated, "-" none) | member ID INSTANCE SUBSCRIPTION-HEX | end
 * and is answered by a line per member, "ID topic-partition…" sorted by member, and "end".
 */
public class Assignors {
    public static void main(String[] arguments) throws Exception {
        Scanner in = new Scanner(System.in);
        String name = null;
        List<PartitionInfo> partitions = new ArrayList<>();
        Map<String, Subscription> members = new HashMap<>();
        Map<String, Node> nodes = new TreeMap<>();
        while (in.hasNextLine()) {
            String[] words = in.nextLine().split(" ");
            switch (words[0]) {
                case "case":
                    name = words[1];
                    partitions = new ArrayList<>();
                    members = new HashMap<>();
                    break;
                case "topic":
                    for (int i = 2; i < words.length; i++) {
                        List<Node> replicas = new ArrayList<>();
                        for (String rack : words[i].split(","))
                            replicas.add(nodes.computeIfAbsent(rack, r -> new Node(nodes.size(), "h", 1, r.equals("-") ? null : r)));
                        Node[] all = replicas.toArray(new Node[0]);
                        partitions.add(new PartitionInfo(words[1], i - 2, all[0], all, all));
                    }
                    break;
                case "member":
                    Subscription subscription = ConsumerProtocol.deserializeSubscription(ByteBuffer.wrap(HexFormat.of().parseHex(words[3])));
                    subscription.setGroupInstanceId(words[2].equals("-") ? Optional.empty() : Optional.of(words[2]));
                    members.put(words[1], subscription);
                    break;
                default:
                    answer(name, new Cluster("c", nodes.values(), partitions, Set.of(), Set.of()), members);
            }
        }
    }

    static void answer(String name, Cluster cluster, Map<String, Subscription> members) throws Exception {
        ConsumerPartitionAssignor assignor = (ConsumerPartitionAssignor) Class.forName("org.apache.kafka.clients.consumer." + name)
            .getDeclaredConstructor().newInstance();
        Map<String, Assignment> result = assignor.assign(cluster, new GroupSubscription(members)).groupAssignment();
        StringBuilder out = new StringBuilder();
        for (Map.Entry<String, Assignment> entry : new TreeMap<>(result).entrySet()) {
            out.append(entry.getKey());
            for (TopicPartition partition : entry.getValue().partitions())
                out.append(' ').append(partition);
            out.append('\n');
        }
        System.out.print(out + "end\n");
        System.out.flush();
    }
}
