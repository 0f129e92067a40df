import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.net.InetAddress;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import kafka.security.authorizer.AclAuthorizer;
import org.apache.kafka.common.acl.AclOperation;
import org.apache.kafka.common.resource.PatternType;
import org.apache.kafka.common.resource.ResourcePattern;
import org.apache.kafka.common.resource.ResourceType;
import org.apache.kafka.common.security.auth.KafkaPrincipal;
import org.apache.kafka.common.security.auth.SecurityProtocol;
import org.apache.kafka.server.authorizer.Action;
import org.apache.kafka.server.authorizer.AuthorizableRequestContext;
import org.apache.kafka.server.authorizer.AuthorizationResult;

/**
 * Kafka's own authorizer as a filter; blanks part the words of a line.
 *
 *     open CONNECT SUPER_USERS ALLOW_EVERYONE          reads the rules below a chroot of ZooKeeper
 *     PRINCIPAL HOST OPERATION RESOURCE NAME           may they? ALLOWED or DENIED
 *     PRINCIPAL HOST OPERATION RESOURCE                with any resource of the type?
 */
public class Decisions {
    private record Asking(KafkaPrincipal principal, InetAddress clientAddress) implements AuthorizableRequestContext {
        public String listenerName() { return "PLAINTEXT"; }
        public SecurityProtocol securityProtocol() { return SecurityProtocol.PLAINTEXT; }
        public int requestType() { return 0; }
        public int requestVersion() { return 0; }
        public String clientId() { return ""; }
        public int correlationId() { return 0; }
    }

    public static void main(String[] arguments) throws Exception {
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.US_ASCII));
        StringBuilder output = new StringBuilder();
        AclAuthorizer authorizer = null;
        for (String line : input.lines().toList()) {
            String[] words = line.split(" ");
            if (words[0].equals("open")) {
                if (authorizer != null) authorizer.close();
                authorizer = new AclAuthorizer();
                Map<String, Object> settings = new HashMap<>();
                settings.put("zookeeper.connect", words[1]);
                settings.put("super.users", words[2]);
                settings.put("allow.everyone.if.no.acl.found", words[3]);
                authorizer.configure(settings);
            } else {
                output.append(decide(authorizer, words)).append('\n');
            }
        }
        if (authorizer != null) authorizer.close();
        System.out.print(output);
    }

    private static AuthorizationResult decide(AclAuthorizer authorizer, String[] words) throws Exception {
        String[] principal = words[0].split(":", 2);
        Asking asking = new Asking(new KafkaPrincipal(principal[0], principal[1]), InetAddress.getByName(words[1]));
        AclOperation operation = AclOperation.valueOf(words[2]);
        ResourceType resource = ResourceType.valueOf(words[3]);
        if (words.length == 4) return authorizer.authorizeByResourceType(asking, operation, resource);
        ResourcePattern pattern = new ResourcePattern(resource, words[4], PatternType.LITERAL);
        return authorizer.authorize(asking, List.of(new Action(operation, pattern, 1, false, false))).get(0);
    }
}
