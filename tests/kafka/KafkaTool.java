import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.BufferedWriter;
import java.io.File;
import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.OutputStreamWriter;
import java.io.PrintWriter;
import java.io.StringWriter;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Base64;
import java.util.HashMap;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import java.util.Set;
import java.util.TreeMap;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.ListOffsetsResult.ListOffsetsResultInfo;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.consumer.OffsetAndTimestamp;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.PartitionInfo;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.TopicPartitionInfo;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.errors.UnknownTopicOrPartitionException;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;
import org.apache.kafka.storage.internals.checkpoint.PartitionMetadata;
import org.apache.kafka.storage.internals.checkpoint.PartitionMetadataFile;
import org.apache.kafka.storage.internals.log.LogDirFailureChannel;

/**
 * Kafka's own clients behind lines of JSON.
 *
 * <p>Usage: {@code KafkaTool BOOTSTRAP}. One request a line on standard input, {@code {"op": ..., ...}}. The answer is
 * any number of lines of rows, {@code {"row": ...}}, and then one of {@code {"ok": ...}} or {@code {"error": ...,
 * "trace": ...}}. Bytes travel as base64, null as null. Producers stay open under a name between requests, so that
 * transactions can be interleaved and left open. The process ends at the end of its input, without closing them.
 */
public final class KafkaTool {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final int OP_TIMEOUT_S = 60;
    private static final int LEADER_TIMEOUT_S = 20;

    /** One request: reads its arguments, prints its rows, returns its result. */
    private interface Op {
        JsonNode run(JsonNode request) throws Exception;
    }

    private final String bootstrap;
    private final BufferedWriter out;
    private final Map<String, Op> ops = new TreeMap<>();
    private final Map<String, KafkaProducer<byte[], byte[]>> producers = new HashMap<>();
    private final Members members = new Members();
    private Admin admin;

    private KafkaTool(String bootstrap, BufferedWriter out) {
        this.bootstrap = bootstrap;
        this.out = out;
        ops.put("create_topic", this::createTopic);
        ops.put("delete_topic", this::deleteTopic);
        ops.put("describe_topics", this::describeTopics);
        ops.put("alter_topic", this::alterTopic);
        ops.put("producer", this::openProducer);
        ops.put("send", this::send);
        ops.put("begin", this::begin);
        ops.put("commit", this::commit);
        ops.put("abort", this::abort);
        ops.put("close", this::closeProducer);
        ops.put("consume", this::consume);
        ops.put("offsets", this::offsets);
        ops.put("offsets_for_times", this::offsetsForTimes);
        ops.put("delete_records", this::deleteRecords);
        ops.put("group_consume", this::groupConsume);
        ops.put("group_read", this::groupRead);
        ops.put("commit_group_offsets", this::commitGroupOffsets);
        ops.put("groups", this::groups);
        ops.put("delete_group", this::deleteGroup);
        ops.put("join", this::join);
        ops.put("commit_as_member", this::commitAsMember);
        ops.put("leave", this::leave);
        ops.put("send_offsets", this::sendOffsets);
        ops.put("add_partitions", this::addPartitions);
        ops.put("alter_config", this::alterConfig);
        ops.put("topic_id", this::topicId);
    }

    public static void main(String[] args) throws IOException {
        // Standard output carries answers only: whatever else prints goes to standard error.
        BufferedWriter out = new BufferedWriter(
                new OutputStreamWriter(new FileOutputStream(FileDescriptor.out), StandardCharsets.UTF_8));
        System.setOut(System.err);
        KafkaTool tool = new KafkaTool(args[0], out);
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            tool.answer(line);
        }
        Runtime.getRuntime().halt(0);
    }

    private void answer(String line) throws IOException {
        ObjectNode answer = JSON.createObjectNode();
        try {
            JsonNode request = JSON.readTree(line);
            Op op = ops.get(request.path("op").asText());
            if (op == null) {
                throw new IllegalArgumentException("no such op: " + request.path("op") + "; ops: " + ops.keySet());
            }
            answer.set("ok", op.run(request));
        } catch (Throwable e) {
            Throwable cause = e instanceof java.util.concurrent.ExecutionException && e.getCause() != null
                    ? e.getCause() : e;
            StringWriter trace = new StringWriter();
            e.printStackTrace(new PrintWriter(trace));
            answer.put("error", cause.toString()).put("trace", trace.toString());
        }
        print(answer);
        out.flush();
    }

    private void print(JsonNode node) throws IOException {
        out.write(JSON.writeValueAsString(node));
        out.write('\n');
    }

    private void row(JsonNode node) throws IOException {
        ObjectNode row = JSON.createObjectNode();
        row.set("row", node);
        print(row);
    }

    // Topics

    private Admin admin() {
        if (admin == null) {
            admin = Admin.create(clientConfig(null));
        }
        return admin;
    }

    private Properties clientConfig(JsonNode extra) {
        Properties config = new Properties();
        config.put("bootstrap.servers", bootstrap);
        config.put("reconnect.backoff.max.ms", "200");
        config.putAll(strings(extra));
        return config;
    }

    private static Map<String, String> strings(JsonNode node) {
        Map<String, String> map = new LinkedHashMap<>();
        if (node != null) {
            node.properties().forEach(e -> map.put(e.getKey(), e.getValue().asText()));
        }
        return map;
    }

    private static List<String> texts(JsonNode node) {
        List<String> list = new ArrayList<>();
        node.forEach(e -> list.add(e.asText()));
        return list;
    }

    private static <T> T await(Future<T> future) throws Exception {
        return future.get(OP_TIMEOUT_S, TimeUnit.SECONDS);
    }

    /** Creates a topic; {@code replicas} has the brokers of each partition, otherwise the cluster chooses them. */
    private JsonNode createTopic(JsonNode request) throws Exception {
        String name = request.get("topic").asText();
        Map<Integer, List<Integer>> replicas = new HashMap<>();
        request.path("replicas").forEach(brokers -> {
            List<Integer> ids = new ArrayList<>();
            brokers.forEach(id -> ids.add(id.asInt()));
            replicas.put(replicas.size(), ids);
        });
        NewTopic topic = replicas.isEmpty()
                ? new NewTopic(name, Optional.of(request.path("partitions").asInt(1)), Optional.empty())
                : new NewTopic(name, replicas);
        await(admin().createTopics(List.of(topic.configs(strings(request.get("config"))))).all());
        return JSON.nullNode();
    }

    private JsonNode deleteTopic(JsonNode request) throws Exception {
        await(admin().deleteTopics(List.of(request.get("topic").asText())).all());
        return JSON.nullNode();
    }

    private JsonNode describeTopics(JsonNode request) throws Exception {
        ObjectNode topics = JSON.createObjectNode();
        Map<String, TopicDescription> found =
                await(admin().describeTopics(texts(request.get("topics"))).allTopicNames());
        for (TopicDescription topic : new TreeMap<>(found).values()) {
            ObjectNode node = topics.putObject(topic.name()).put("topic_id", topic.topicId().toString());
            ArrayNode partitions = node.putArray("partitions");
            for (TopicPartitionInfo partition : topic.partitions()) {
                ObjectNode info = partitions.addObject().put("partition", partition.partition());
                info.put("leader", partition.leader() == null ? -1 : partition.leader().id());
                partition.replicas().forEach(n -> info.withArray("replicas").add(n.id()));
                partition.isr().forEach(n -> info.withArray("isr").add(n.id()));
            }
        }
        return topics;
    }

    /** Sets topic configs; a null value takes the config away. */
    private JsonNode alterTopic(JsonNode request) throws Exception {
        return alterConfig(ConfigResource.Type.TOPIC, request.get("topic").asText(), request.get("config"));
    }

    /** Sets configs of a resource of any kind, {@code type} and {@code name}; a null value takes the config away. */
    private JsonNode alterConfig(JsonNode request) throws Exception {
        ConfigResource.Type type = ConfigResource.Type.valueOf(request.get("type").asText());
        return alterConfig(type, request.get("name").asText(), request.get("config"));
    }

    private JsonNode alterConfig(ConfigResource.Type type, String name, JsonNode config) throws Exception {
        List<AlterConfigOp> changes = new ArrayList<>();
        config.properties().forEach(e -> changes.add(new AlterConfigOp(
                new ConfigEntry(e.getKey(), e.getValue().isNull() ? null : e.getValue().asText()),
                e.getValue().isNull() ? AlterConfigOp.OpType.DELETE : AlterConfigOp.OpType.SET)));
        long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(OP_TIMEOUT_S);
        while (true) {
            try {
                await(admin().incrementalAlterConfigs(Map.of(new ConfigResource(type, name), changes)).all());
                return JSON.nullNode();
            } catch (ExecutionException e) {
                // A broker that has just started answers before it has heard of its topics.
                if (!(e.getCause() instanceof UnknownTopicOrPartitionException) || System.nanoTime() > deadline) {
                    throw e;
                }
                Thread.sleep(50);
            }
        }
    }

    private JsonNode addPartitions(JsonNode request) throws Exception {
        NewPartitions grown = NewPartitions.increaseTo(request.get("partitions").asInt());
        await(admin().createPartitions(Map.of(request.get("topic").asText(), grown)).all());
        return JSON.nullNode();
    }

    // Producers

    private JsonNode openProducer(JsonNode request) throws Exception {
        String name = request.get("name").asText();
        if (producers.containsKey(name)) {
            throw new IllegalArgumentException("producer is open: " + name);
        }
        Properties config = clientConfig(request.get("config"));
        KafkaProducer<byte[], byte[]> producer =
                new KafkaProducer<>(config, new ByteArraySerializer(), new ByteArraySerializer());
        producers.put(name, producer);
        if (config.containsKey("transactional.id")) {
            producer.initTransactions();
        }
        return JSON.nullNode();
    }

    private KafkaProducer<byte[], byte[]> producer(JsonNode request) {
        KafkaProducer<byte[], byte[]> producer = producers.get(request.get("name").asText());
        if (producer == null) {
            throw new IllegalArgumentException("no producer: " + request.get("name"));
        }
        return producer;
    }

    /** Sends each group of records and flushes after it; a group that fits one batch becomes one batch a partition. */
    private JsonNode send(JsonNode request) throws Exception {
        KafkaProducer<byte[], byte[]> producer = producer(request);
        ArrayNode offsets = JSON.createArrayNode();
        for (JsonNode group : request.get("groups")) {
            List<Future<RecordMetadata>> sent = new ArrayList<>();
            for (JsonNode record : group) {
                sent.add(producer.send(producerRecord(record)));
            }
            producer.flush();
            for (Future<RecordMetadata> future : sent) {
                offsets.add(await(future).offset());
            }
        }
        return offsets;
    }

    private static ProducerRecord<byte[], byte[]> producerRecord(JsonNode node) throws IOException {
        ProducerRecord<byte[], byte[]> record = new ProducerRecord<>(
                node.get("topic").asText(),
                node.hasNonNull("partition") ? Integer.valueOf(node.get("partition").asInt()) : null,
                node.hasNonNull("timestamp") ? Long.valueOf(node.get("timestamp").asLong()) : null,
                bytes(node.get("key")),
                bytes(node.get("value")));
        for (JsonNode header : node.path("headers")) {
            record.headers().add(header.get(0).asText(), bytes(header.get(1)));
        }
        return record;
    }

    private static byte[] bytes(JsonNode node) throws IOException {
        return node == null || node.isNull() ? null : Base64.getDecoder().decode(node.asText());
    }

    private JsonNode begin(JsonNode request) {
        producer(request).beginTransaction();
        return JSON.nullNode();
    }

    private JsonNode commit(JsonNode request) {
        producer(request).commitTransaction();
        return JSON.nullNode();
    }

    private JsonNode abort(JsonNode request) {
        producer(request).abortTransaction();
        return JSON.nullNode();
    }

    private JsonNode closeProducer(JsonNode request) {
        producer(request).close(Duration.ofSeconds(OP_TIMEOUT_S));
        producers.remove(request.get("name").asText());
        return JSON.nullNode();
    }

    // Consumers

    private KafkaConsumer<byte[], byte[]> consumer(JsonNode request) {
        Properties config = consumerConfig(request);
        return new KafkaConsumer<>(config, new ByteArrayDeserializer(), new ByteArrayDeserializer());
    }

    private Properties consumerConfig(JsonNode request) {
        Properties config = clientConfig(null);
        config.put("enable.auto.commit", "false");
        config.put("auto.offset.reset", "earliest");
        config.put("max.poll.records", "5000");
        config.put("fetch.max.wait.ms", "20");
        config.put("exclude.internal.topics", "false");
        config.put("allow.auto.create.topics", "false");
        config.put("isolation.level", request.path("isolation").asText("read_uncommitted"));
        config.putAll(strings(request.get("config")));
        return config;
    }

    private static List<TopicPartition> partitions(KafkaConsumer<byte[], byte[]> consumer, JsonNode topics)
            throws InterruptedException {
        List<TopicPartition> partitions = new ArrayList<>();
        for (JsonNode topic : topics) {
            awaitPartitions(consumer, topic.asText())
                    .forEach(p -> partitions.add(new TopicPartition(p.topic(), p.partition())));
        }
        partitions.sort((a, b) -> a.topic().equals(b.topic())
                ? Integer.compare(a.partition(), b.partition()) : a.topic().compareTo(b.topic()));
        return partitions;
    }

    /** A broker that has just started, or a topic that was just created, has no leaders yet: ask again for a while. */
    private static List<PartitionInfo> awaitPartitions(KafkaConsumer<byte[], byte[]> consumer, String topic)
            throws InterruptedException {
        long deadline = System.nanoTime() + Duration.ofSeconds(LEADER_TIMEOUT_S).toNanos();
        while (true) {
            List<PartitionInfo> found = consumer.partitionsFor(topic, Duration.ofSeconds(OP_TIMEOUT_S));
            if (found != null && !found.isEmpty() && found.stream().allMatch(p -> p.leader() != null)) {
                return found;
            }
            if (System.nanoTime() > deadline) {
                throw new IllegalArgumentException("no such topic, or no leader: " + topic + " " + found);
            }
            Thread.sleep(100);
        }
    }

    private static Duration deadlineFrom(JsonNode request) {
        return Duration.ofSeconds(request.path("timeout_s").asInt(OP_TIMEOUT_S));
    }

    /** Reads every partition of the topics, in turn, from the beginning to the end the isolation level allows. */
    private JsonNode consume(JsonNode request) throws Exception {
        long rows = 0;
        try (KafkaConsumer<byte[], byte[]> consumer = consumer(request)) {
            for (TopicPartition partition : partitions(consumer, request.get("topics"))) {
                consumer.assign(List.of(partition));
                consumer.seekToBeginning(List.of(partition));
                long end = consumer.endOffsets(List.of(partition)).get(partition);
                long deadline = System.nanoTime() + deadlineFrom(request).toNanos();
                while (consumer.position(partition) < end) {
                    for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(200))) {
                        if (record.offset() < end) {
                            row(recordRow(record));
                            rows++;
                        }
                    }
                    if (System.nanoTime() > deadline) {
                        throw new IllegalStateException(
                                partition + " stays at " + consumer.position(partition) + ", its end is " + end);
                    }
                }
            }
        }
        return JSON.getNodeFactory().numberNode(rows);
    }

    private static ObjectNode recordRow(ConsumerRecord<byte[], byte[]> record) {
        ObjectNode node = JSON.createObjectNode()
                .put("topic", record.topic())
                .put("partition", record.partition())
                .put("offset", record.offset())
                .put("timestamp", record.timestamp())
                .put("timestampType", record.timestampType().toString())
                .put("key", record.key())
                .put("value", record.value());
        ArrayNode headers = node.putArray("headers");
        for (Header header : record.headers()) {
            headers.addArray().add(header.key()).add(header.value());
        }
        node.put("leaderEpoch", record.leaderEpoch().orElse(null));
        return node;
    }

    private JsonNode offsets(JsonNode request) throws Exception {
        ArrayNode answer = JSON.createArrayNode();
        try (KafkaConsumer<byte[], byte[]> consumer = consumer(request);
                KafkaConsumer<byte[], byte[]> committed = consumer(
                        ((ObjectNode) request.deepCopy()).put("isolation", "read_committed"))) {
            List<TopicPartition> partitions = partitions(consumer, request.get("topics"));
            Map<TopicPartition, Long> beginning = consumer.beginningOffsets(partitions);
            Map<TopicPartition, Long> end = consumer.endOffsets(partitions);
            Map<TopicPartition, Long> stable = committed.endOffsets(partitions);
            Map<TopicPartition, OffsetSpec> newest = new HashMap<>();
            partitions.forEach(p -> newest.put(p, OffsetSpec.maxTimestamp()));
            for (TopicPartition p : partitions) {
                ObjectNode node = answer.addObject().put("topic", p.topic()).put("partition", p.partition());
                node.put("beginning", beginning.get(p)).put("end", end.get(p)).put("last_stable", stable.get(p));
                if (request.path("max_timestamp").asBoolean(false)) {
                    ListOffsetsResultInfo info =
                            await(admin().listOffsets(Map.of(p, newest.get(p))).partitionResult(p));
                    node.put("max_timestamp_offset", info.offset()).put("max_timestamp", info.timestamp());
                }
            }
        }
        return answer;
    }

    /** For each topic, partition and timestamp: the first offset at or after the timestamp, or null. */
    private JsonNode offsetsForTimes(JsonNode request) throws Exception {
        ArrayNode answer = JSON.createArrayNode();
        try (KafkaConsumer<byte[], byte[]> consumer = consumer(request)) {
            for (JsonNode query : request.get("queries")) {
                TopicPartition p = new TopicPartition(query.get("topic").asText(), query.get("partition").asInt());
                long timestamp = query.get("timestamp").asLong();
                OffsetAndTimestamp found = consumer.offsetsForTimes(Map.of(p, timestamp)).get(p);
                ObjectNode node = answer.addObject().put("topic", p.topic()).put("partition", p.partition());
                node.put("timestamp", timestamp);
                node.put("offset", found == null ? null : (Long) found.offset());
                node.put("found_timestamp", found == null ? null : (Long) found.timestamp());
            }
        }
        return answer;
    }

    private JsonNode deleteRecords(JsonNode request) throws Exception {
        TopicPartition p = new TopicPartition(request.get("topic").asText(), request.get("partition").asInt());
        RecordsToDelete before = RecordsToDelete.beforeOffset(request.get("before_offset").asLong());
        long low = await(admin().deleteRecords(Map.of(p, before)).lowWatermarks().get(p)).lowWatermark();
        return JSON.getNodeFactory().numberNode(low);
    }

    // Groups

    /** Joins a group, reads to the end, commits, leaves. */
    private JsonNode groupConsume(JsonNode request) throws Exception {
        ObjectNode config = request.hasNonNull("config") ? request.get("config").deepCopy() : JSON.createObjectNode();
        config.put("group.id", request.get("group").asText());
        ObjectNode withGroup = ((ObjectNode) request.deepCopy()).set("config", config);
        Map<TopicPartition, Long> left = new HashMap<>();
        try (KafkaConsumer<byte[], byte[]> consumer = consumer(withGroup)) {
            left.putAll(consumer.endOffsets(partitions(consumer, request.get("topics"))));
            left.values().removeIf(end -> end == 0L);
            consumer.subscribe(texts(request.get("topics")));
            long deadline = System.nanoTime() + deadlineFrom(request).toNanos();
            while (!left.isEmpty() && System.nanoTime() < deadline) {
                ConsumerRecords<byte[], byte[]> ignored = consumer.poll(Duration.ofMillis(200));
                Set<TopicPartition> assigned = new HashSet<>(consumer.assignment());
                left.entrySet().removeIf(
                        e -> assigned.contains(e.getKey()) && consumer.position(e.getKey()) >= e.getValue());
                consumer.commitSync();
            }
        }
        if (!left.isEmpty()) {
            throw new IllegalStateException("the group did not reach " + left);
        }
        return JSON.nullNode();
    }

    /** Joins a group, reads from where it is to the end of one topic, and leaves without a commit. */
    private JsonNode groupRead(JsonNode request) throws Exception {
        ObjectNode config = JSON.createObjectNode().put("group.id", request.get("group").asText());
        ObjectNode withGroup = ((ObjectNode) request.deepCopy()).set("config", config);
        long deadline = System.nanoTime() + deadlineFrom(request).toNanos();
        try (KafkaConsumer<byte[], byte[]> consumer = consumer(withGroup)) {
            Map<TopicPartition, Long> ends = consumer.endOffsets(partitions(consumer, request.get("topics")));
            consumer.subscribe(texts(request.get("topics")));
            while (!consumer.assignment().containsAll(ends.keySet())
                    || ends.entrySet().stream().anyMatch(e -> consumer.position(e.getKey()) < e.getValue())) {
                for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(200))) {
                    row(recordRow(record));
                }
                if (System.nanoTime() > deadline) {
                    throw new IllegalStateException("the group did not reach " + ends);
                }
            }
        }
        return JSON.nullNode();
    }

    private JsonNode commitGroupOffsets(JsonNode request) throws Exception {
        await(admin().alterConsumerGroupOffsets(request.get("group").asText(), offsetsOf(request)).all());
        return JSON.nullNode();
    }

    private static Map<TopicPartition, OffsetAndMetadata> offsetsOf(JsonNode request) {
        Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
        for (JsonNode node : request.get("offsets")) {
            offsets.put(
                    new TopicPartition(node.get("topic").asText(), node.get("partition").asInt()),
                    new OffsetAndMetadata(
                            node.get("offset").asLong(), Optional.empty(), node.path("metadata").asText("")));
        }
        return offsets;
    }

    /** Joins a group as a member that stays; {@code share} makes it one of a share group. */
    private JsonNode join(JsonNode request) throws Exception {
        boolean isShare = request.path("share").asBoolean(false);
        Properties config = isShare ? clientConfig(request.get("config")) : consumerConfig(request);
        config.put("group.id", request.get("group").asText());
        members.join(request.get("name").asText(), config, texts(request.get("topics")), isShare);
        return JSON.nullNode();
    }

    private JsonNode commitAsMember(JsonNode request) throws Exception {
        members.commit(request.get("name").asText(), offsetsOf(request));
        return JSON.nullNode();
    }

    private JsonNode leave(JsonNode request) throws Exception {
        members.leave(request.get("name").asText());
        return JSON.nullNode();
    }

    /** Adds a group's offsets to a producer's transaction. */
    private JsonNode sendOffsets(JsonNode request) {
        ConsumerGroupMetadata group = new ConsumerGroupMetadata(request.get("group").asText());
        producer(request).sendOffsetsToTransaction(offsetsOf(request), group);
        return JSON.nullNode();
    }

    private JsonNode deleteGroup(JsonNode request) throws Exception {
        await(admin().deleteConsumerGroups(List.of(request.get("group").asText())).all());
        return JSON.nullNode();
    }

    private JsonNode groups(JsonNode request) throws Exception {
        ArrayNode answer = JSON.createArrayNode();
        for (String group : texts(request.get("groups"))) {
            Map<TopicPartition, OffsetAndMetadata> found =
                    await(admin().listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata());
            for (TopicPartition p : found.keySet()) {
                answer.addObject().put("group", group).put("topic", p.topic()).put("partition", p.partition())
                        .put("offset", found.get(p).offset()).put("metadata", found.get(p).metadata());
            }
        }
        return answer;
    }

    // Files

    /** Reads a {@code partition.metadata} as a broker does. */
    private JsonNode topicId(JsonNode request) {
        File file = new File(request.get("path").asText());
        PartitionMetadata found = new PartitionMetadataFile(file, new LogDirFailureChannel(1)).read();
        return JSON.createObjectNode().put("version", found.version()).put("topic_id", found.topicId().toString());
    }
}
