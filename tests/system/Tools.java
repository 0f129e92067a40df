import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.reflect.InvocationTargetException;
import java.util.Arrays;
import org.apache.kafka.common.utils.Exit;

/** Runs Kafka's tools one after the other in one JVM: a line of the input is a class and its arguments, tabs between. */
public class Tools {
    static class Ended extends RuntimeException {}

    /** What the tool ended with at first: some catch our exception, and end once more. */
    private static Integer status;

    public static void main(String[] arguments) throws Exception {
        Exit.setExitProcedure((code, message) -> {
            status = status == null ? code : status;
            throw new Ended();
        });
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            String[] words = line.split("\t");
            int ended = run(words[0], Arrays.copyOfRange(words, 1, words.length));
            System.out.println("\n=== " + ended);
        }
        System.out.flush();
        Runtime.getRuntime().halt(0);
    }

    private static int run(String name, String[] arguments) throws Exception {
        status = null;
        try {
            Class.forName(name).getMethod("main", String[].class).invoke(null, (Object) arguments);
            return 0;
        } catch (InvocationTargetException thrown) {
            if (thrown.getCause() instanceof Ended) {
                return status;
            }
            thrown.getCause().printStackTrace(System.out);
            return 1;
        }
    }
}
