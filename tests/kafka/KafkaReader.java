import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Base64;
import java.util.HexFormat;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.MutableRecordBatch;
import org.apache.kafka.common.record.internal.Record;
import org.apache.kafka.common.utils.BufferSupplier;
import org.apache.kafka.common.utils.CloseableIterator;

/**
 * Reads batches with the classes that Kafka's consumer reads them with, without a broker.
 *
 * <p>Usage: {@code KafkaReader CASES}. Each line of the file {@code CASES} is the hexadecimal of some batches. For each,
 * one line of JSON goes to standard output: {@code rows}, an array of [base offset of the batch, offset, timestamp, key,
 * value] a record, with base64 or null; and {@code error} where the consumer would have thrown. The steps are those of
 * CompletedFetch, but for records below the offset that it fetches next, which it passes over and which are rows here.
 */
public final class KafkaReader {
    private static final ObjectMapper JSON = new ObjectMapper();

    private KafkaReader() {}

    public static void main(String[] args) throws IOException {
        try (BufferedReader cases = Files.newBufferedReader(Path.of(args[0]), StandardCharsets.UTF_8)) {
            for (String line = cases.readLine(); line != null; line = cases.readLine()) {
                System.out.println(JSON.writeValueAsString(read(HexFormat.of().parseHex(line.trim()))));
            }
        }
    }

    private static ObjectNode read(byte[] data) {
        ObjectNode answer = JSON.createObjectNode();
        ArrayNode rows = answer.putArray("rows");
        try {
            for (MutableRecordBatch batch : MemoryRecords.readableRecords(ByteBuffer.wrap(data)).batches()) {
                batch.ensureValid();
                try (CloseableIterator<Record> records = batch.streamingIterator(BufferSupplier.create())) {
                    while (records.hasNext()) {
                        Record record = records.next();
                        record.ensureValid();
                        if (!batch.isControlBatch()) {
                            rows.add(row(batch, record));
                        }
                    }
                }
            }
        } catch (Throwable e) {
            answer.put("error", e.toString());
        }
        return answer;
    }

    private static ArrayNode row(MutableRecordBatch batch, Record record) {
        return JSON.createArrayNode()
                .add(batch.baseOffset())
                .add(record.offset())
                .add(record.timestamp())
                .add(text(record.key()))
                .add(text(record.value()));
    }

    private static String text(ByteBuffer bytes) {
        if (bytes == null) {
            return null;
        }
        byte[] copy = new byte[bytes.remaining()];
        bytes.duplicate().get(copy);
        return Base64.getEncoder().encodeToString(copy);
    }
}
