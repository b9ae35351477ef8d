import java.io.FileWriter;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.io.Writer;
import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.TreeSet;
import org.apache.kafka.clients.consumer.AcknowledgeType;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.common.TopicIdPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * A share consumer that runs until SIGTERM.
 *
 * <p>Arguments: the output file; "implicit" or "explicit"; the topic; properties as NAME=VALUE. The value of a record is
 * a number. In explicit mode, every 50th record is always released, every 50th is rejected, and every 10th is released
 * when it is delivered for the first time. The lines of the output are described in support/share_clients/output.py.
 */
public final class ShareClients {
    private static final Duration POLL = Duration.ofMillis(200);
    private static final Duration COMMIT_TIMEOUT = Duration.ofSeconds(5);

    private static volatile boolean isStopped;

    private final Writer output;
    private final KafkaShareConsumer<byte[], byte[]> consumer;
    private final boolean isExplicit;
    private final Map<Integer, Map<Long, Delivery>> pending = new HashMap<>();
    private long batches;

    private record Delivery(int count, AcknowledgeType type) {
        boolean isSame(Delivery other) {
            return other != null && other.count == count && other.type == type;
        }
    }

    /** Writes a line for each range of offsets with the same delivery. */
    private final class Ranges {
        private final String kind;
        private final int partition;
        private final String end;
        private final long time = System.currentTimeMillis();
        private Delivery delivery;
        private long first;
        private long last;

        Ranges(String kind, int partition, String end) {
            this.kind = kind;
            this.partition = partition;
            this.end = end;
        }

        void add(long offset, Delivery next) throws IOException {
            if (delivery != null && (offset != last + 1 || !next.isSame(delivery))) {
                finish();
                first = offset;
            } else if (delivery == null) {
                first = offset;
            }
            last = offset;
            delivery = next;
        }

        void finish() throws IOException {
            if (delivery != null) {
                output.write(kind + "\t" + time + "\t" + partition + "\t" + first + "\t" + last + "\t" + delivery.count + "\t"
                        + delivery.type + end + "\n");
            }
        }
    }

    private ShareClients(String file, boolean isExplicit, Properties properties) throws IOException {
        this.output = new FileWriter(file, true);
        this.isExplicit = isExplicit;
        this.consumer = new KafkaShareConsumer<>(properties, new ByteArrayDeserializer(), new ByteArrayDeserializer());
    }

    public static void main(String[] arguments) throws Exception {
        Thread main = Thread.currentThread();
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            isStopped = true;
            try {
                main.join(60_000);
            } catch (InterruptedException error) {
                Thread.currentThread().interrupt();
            }
        }));
        Properties properties = new Properties();
        for (String setting : List.of(arguments).subList(3, arguments.length)) {
            String[] parts = setting.split("=", 2);
            properties.setProperty(parts[0], parts[1]);
        }
        properties.setProperty("share.acknowledgement.mode", arguments[1]);
        ShareClients client = new ShareClients(arguments[0], arguments[1].equals("explicit"), properties);
        try {
            client.consume(arguments[2]);
            client.event("closed");
        } catch (Throwable error) {
            client.event("failed " + error);
            error.printStackTrace();
            Runtime.getRuntime().halt(1);
        }
    }

    private void consume(String topic) throws IOException {
        consumer.setAcknowledgementCommitCallback(this::acknowledged);
        consumer.subscribe(List.of(topic));
        long former = System.currentTimeMillis();
        long earliest = former;
        while (!isStopped) {
            long now = System.currentTimeMillis();
            ConsumerRecords<byte[], byte[]> records = consumer.poll(POLL); // also what arrived during the poll before
            if (!records.isEmpty()) {
                deliver(records, earliest);
                commit();
            }
            earliest = former;
            former = now;
        }
        consumer.close(Duration.ofSeconds(20));
    }

    /** Commit by a request of its own, which is awaited or not, or else with the next fetch. */
    private void commit() {
        batches++;
        if (batches % 3 == 1) {
            consumer.commitSync(COMMIT_TIMEOUT); // an error is one of the callback, too
        } else if (batches % 3 == 2) {
            consumer.commitAsync();
        }
    }

    private void deliver(ConsumerRecords<byte[], byte[]> records, long earliest) throws IOException {
        for (var partition : records.partitions()) {
            Map<Long, Delivery> deliveries = pending.computeIfAbsent(partition.partition(), number -> new HashMap<>());
            Ranges ranges = new Ranges("D", partition.partition(), "\t" + earliest);
            for (ConsumerRecord<byte[], byte[]> record : records.records(partition)) {
                int count = record.deliveryCount().orElseThrow();
                AcknowledgeType type = isExplicit ? decide(Long.parseLong(new String(record.value())), count) : AcknowledgeType.ACCEPT;
                Delivery delivery = new Delivery(count, type);
                if (isExplicit) {
                    consumer.acknowledge(record, type);
                }
                // After a delivery whose result is not known yet, the next result may be that of either one.
                deliveries.merge(record.offset(), delivery, (former, next) -> new Delivery(0, type));
                ranges.add(record.offset(), delivery);
            }
            ranges.finish();
        }
        output.flush(); // before anything is acknowledged
    }

    private static AcknowledgeType decide(long number, int count) {
        if (number % 50 == 0) {
            return AcknowledgeType.RELEASE;
        }
        if (number % 50 == 1) {
            return AcknowledgeType.REJECT;
        }
        return number % 10 == 2 && count == 1 ? AcknowledgeType.RELEASE : AcknowledgeType.ACCEPT;
    }

    private void acknowledged(Map<TopicIdPartition, Set<Long>> offsets, Exception error) {
        try {
            for (var entry : offsets.entrySet()) {
                int partition = entry.getKey().partition();
                Map<Long, Delivery> deliveries = pending.getOrDefault(partition, Map.of());
                Ranges ranges = new Ranges("A", partition, "\t" + (error == null ? "OK" : error.getClass().getSimpleName()));
                for (long offset : new TreeSet<>(entry.getValue())) {
                    Delivery delivery = deliveries.remove(offset);
                    if (delivery != null && delivery.count > 0) {
                        ranges.add(offset, delivery);
                    }
                }
                ranges.finish();
            }
            output.flush();
        } catch (IOException failure) {
            throw new UncheckedIOException(failure);
        }
    }

    private void event(String text) throws IOException {
        output.write("E\t" + System.currentTimeMillis() + "\t" + text.replace('\n', ' ').replace('\t', ' ') + "\n");
        output.flush();
    }
}
