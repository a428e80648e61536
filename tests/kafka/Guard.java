import java.io.IOException;
import java.util.Arrays;

/**
 * Runs another main class and dies with its parent.
 *
 * <p>The parent holds the other end of standard input and never writes to it. When the parent ends, however it
 * ends, the pipe closes, and this process halts at once.
 */
public final class Guard {
    private Guard() {}

    public static void main(String[] args) throws Throwable {
        Thread watch = new Thread(Guard::haltAtEndOfInput, "parent-guard");
        watch.setDaemon(true);
        watch.start();
        String[] rest = Arrays.copyOfRange(args, 1, args.length);
        try {
            Class.forName(args[0]).getMethod("main", String[].class).invoke(null, (Object) rest);
        } catch (java.lang.reflect.InvocationTargetException e) {
            throw e.getCause();
        }
    }

    private static void haltAtEndOfInput() {
        try {
            while (System.in.read() >= 0) {
                continue;
            }
        } catch (IOException e) {
            // A broken pipe is an end as well.
        }
        Runtime.getRuntime().halt(137);
    }
}
