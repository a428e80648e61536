import java.io.File;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.hdfs.MiniDFSCluster;

/** Runs a name node and a data node in this process until its standard input ends; prints the port of the name node. */
public class MiniDfs {
    public static void main(String[] arguments) throws Exception {
        Configuration settings = new Configuration();
        settings.set("dfs.permissions.enabled", "false");
        settings.set("dfs.replication", "1");
        MiniDFSCluster cluster =
                new MiniDFSCluster.Builder(settings, new File(arguments[0])).numDataNodes(1).format(true).build();
        cluster.waitActive();
        System.out.println("PORT " + cluster.getNameNodePort());
        System.out.flush();
        while (System.in.read() >= 0) {
        }
        cluster.shutdown();
        System.exit(0);
    }
}
