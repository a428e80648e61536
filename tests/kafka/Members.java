import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.function.BooleanSupplier;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/** Members of groups that stay: each polls in a thread of its own until it is told to leave, or the process ends. */
final class Members {
    private static final int TIMEOUT_S = 60;
    private static final Duration POLL = Duration.ofMillis(100);

    /** What a member's thread does between two polls. */
    private interface Member {
        void poll();

        boolean isAssigned();

        void commit(Map<TopicPartition, OffsetAndMetadata> offsets);

        void close();
    }

    private final class Running {
        private final BlockingQueue<Runnable> asked = new LinkedBlockingQueue<>();
        private final CompletableFuture<Void> assigned = new CompletableFuture<>();
        private final CompletableFuture<Void> left = new CompletableFuture<>();
        private final Member member;
        private volatile boolean leaves;

        private Running(Member member) {
            this.member = member;
            Thread thread = new Thread(this::run, "member");
            thread.setDaemon(true);
            thread.start();
        }

        private void run() {
            try {
                while (!leaves) {
                    for (Runnable task = asked.poll(); task != null; task = asked.poll()) {
                        task.run();
                    }
                    member.poll();
                    if (member.isAssigned()) {
                        assigned.complete(null);
                    }
                }
                member.close();
                left.complete(null);
            } catch (Throwable e) {
                assigned.completeExceptionally(e);
                left.completeExceptionally(e);
            }
        }

        private void on(Runnable task) throws Exception {
            CompletableFuture<Void> done = new CompletableFuture<>();
            asked.add(() -> {
                try {
                    task.run();
                    done.complete(null);
                } catch (Throwable e) {
                    done.completeExceptionally(e);
                }
            });
            await(done);
        }
    }

    private final Map<String, Running> members = new HashMap<>();

    /** Joins a group; waits until the member has partitions, which one of a share group never says. */
    void join(String name, Properties config, List<String> topics, boolean isShare) throws Exception {
        Running running = new Running(isShare ? ofShareGroup(config, topics) : ofConsumerGroup(config, topics));
        members.put(name, running);
        await(running.assigned);
    }

    void commit(String name, Map<TopicPartition, OffsetAndMetadata> offsets) throws Exception {
        Running running = members.get(name);
        running.on(() -> running.member.commit(offsets));
    }

    void leave(String name) throws Exception {
        Running running = members.remove(name);
        running.leaves = true;
        await(running.left);
    }

    private static <T> T await(CompletableFuture<T> future) throws Exception {
        return future.get(TIMEOUT_S, TimeUnit.SECONDS);
    }

    private static Member ofConsumerGroup(Properties config, List<String> topics) {
        KafkaConsumer<byte[], byte[]> consumer =
                new KafkaConsumer<>(config, new ByteArrayDeserializer(), new ByteArrayDeserializer());
        consumer.subscribe(topics);
        BooleanSupplier isAssigned = () -> !consumer.assignment().isEmpty();
        return new Member() {
            @Override
            public void poll() {
                consumer.poll(POLL);
            }

            @Override
            public boolean isAssigned() {
                return isAssigned.getAsBoolean();
            }

            @Override
            public void commit(Map<TopicPartition, OffsetAndMetadata> offsets) {
                consumer.commitSync(offsets);
            }

            @Override
            public void close() {
                consumer.close();
            }
        };
    }

    private static Member ofShareGroup(Properties config, List<String> topics) {
        KafkaShareConsumer<byte[], byte[]> consumer =
                new KafkaShareConsumer<>(config, new ByteArrayDeserializer(), new ByteArrayDeserializer());
        consumer.subscribe(topics);
        return new Member() {
            private boolean hasRecords;

            @Override
            public void poll() {
                hasRecords |= !consumer.poll(POLL).isEmpty();
            }

            @Override
            public boolean isAssigned() {
                return hasRecords;
            }

            @Override
            public void commit(Map<TopicPartition, OffsetAndMetadata> offsets) {
                consumer.commitSync();
            }

            @Override
            public void close() {
                consumer.close();
            }
        };
    }
}
