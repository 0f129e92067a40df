import java.util.List;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.Scanner;
import org.apache.zookeeper.AddWatchMode;
import org.apache.zookeeper.CreateMode;
import org.apache.zookeeper.KeeperException;
import org.apache.zookeeper.Op;
import org.apache.zookeeper.WatchedEvent;
import org.apache.zookeeper.Watcher;
import org.apache.zookeeper.ZooDefs.Ids;
import org.apache.zookeeper.ZooKeeper;
import org.apache.zookeeper.data.Stat;

/** Java's own client: a line for each answer and event. It waits for a line of input where something is to happen. */
public class ZooKeeperClient {
    static final BlockingQueue<String> events = new LinkedBlockingQueue<>();

    static void take(WatchedEvent event) {
        if (event.getType() == Watcher.Event.EventType.None) return;
        events.add(event.getType() + " " + event.getPath());
    }

    static void tell(Object text) {
        System.out.println(text);
        System.out.flush();
    }

    static void tellEvent() throws Exception {
        tell("event " + events.poll(60, TimeUnit.SECONDS));
    }

    public static void main(String[] arguments) throws Exception {
        ZooKeeper client = new ZooKeeper(arguments[0], 20_000, ZooKeeperClient::take);
        client.addAuthInfo("digest", "ann:secret".getBytes());
        tell("created " + client.create("/java", null, Ids.OPEN_ACL_UNSAFE, CreateMode.CONTAINER));
        tell("data " + client.getData("/java", true, null));
        Stat stat = client.setData("/java", "x".getBytes(), 0);
        tellEvent();
        tell("version " + stat.getVersion() + " " + client.exists("/java", false).equals(stat));
        Stat made = new Stat();
        tell("created " + client.create("/java/s-", new byte[0], Ids.CREATOR_ALL_ACL, CreateMode.EPHEMERAL_SEQUENTIAL, made));
        tell("mine " + (made.getEphemeralOwner() == client.getSessionId()) + " " + client.getEphemerals());
        tell("acl " + client.getACL("/java/s-0000000000", null));
        try {
            client.multi(List.of(Op.delete("/java/s-0000000000", -1), Op.check("/java", 7)));
        } catch (KeeperException error) {
            tell("multi " + error.code() + " " + error.getResults().size());
        }
        tell("multi " + client.multi(List.of(
            Op.create("/java/a", null, Ids.OPEN_ACL_UNSAFE, CreateMode.PERSISTENT),
            Op.setData("/java/a", "y".getBytes(), 0),
            Op.check("/java/a", 1))).size());
        tell("read " + client.multi(List.of(Op.getData("/java/a"), Op.getChildren("/java"), Op.getData("/none"))).size());
        tell("below " + client.getAllChildrenNumber("/java"));
        client.addWatch("/java", ZooKeeperClient::take, AddWatchMode.PERSISTENT_RECURSIVE);
        client.getChildren("/", true);
        tell("ready");
        new Scanner(System.in).nextLine();  // the server is killed and started again, and others write
        tellEvent();
        tellEvent();
        tell("session " + (made.getEphemeralOwner() == client.exists("/java/s-0000000000", false).getEphemeralOwner()));
        client.removeAllWatches("/java", Watcher.WatcherType.Any, false);
        client.close();
        tell("closed");
    }
}
