import java.io.FileWriter;
import java.io.IOException;
import java.io.Writer;
import java.time.Duration;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.regex.Pattern;
import org.apache.kafka.clients.consumer.Consumer;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.consumer.SubscriptionPattern;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.WakeupException;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * A consumer, or a pipeline with transactions, that runs until SIGTERM.
 *
 * <p>Arguments: "consume" or "pipeline"; the output file; the topic, or a regular expression that begins with "^"; for
 * a pipeline the topic of its results and its transactional id; properties as NAME=VALUE. The lines of the output are
 * described in support/clients/output.py.
 */
public final class RealClients {
    private static final Duration POLL = Duration.ofMillis(200);
    private static final Duration COMMIT_TIMEOUT = Duration.ofSeconds(5);
    private static final long COMMIT_INTERVAL_MS = 500;

    private static volatile boolean isStopped;

    private final Writer output;
    private final Properties properties = new Properties();
    private final String topic;

    private RealClients(String file, String topic, List<String> settings) throws IOException {
        this.output = new FileWriter(file, true);
        this.topic = topic;
        for (String setting : settings) {
            String[] parts = setting.split("=", 2);
            properties.setProperty(parts[0], parts[1]);
        }
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
        List<String> rest = List.of(arguments);
        boolean isPipeline = arguments[0].equals("pipeline");
        RealClients client = new RealClients(arguments[1], arguments[2], rest.subList(isPipeline ? 5 : 3, rest.size()));
        try {
            if (isPipeline) {
                client.transform(arguments[3], arguments[4]);
            } else {
                client.consume();
            }
            client.event("closed");
        } catch (Throwable error) {
            client.event("failed " + error);
            error.printStackTrace();
            Runtime.getRuntime().halt(1);
        }
    }

    private void consume() throws IOException {
        try (Consumer<byte[], byte[]> consumer = new KafkaConsumer<>(properties, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            subscribe(consumer);
            long committedAt = 0;
            boolean isCommitted = true;
            while (!isStopped) {
                ConsumerRecords<byte[], byte[]> records = consumer.poll(POLL);
                write(records);
                isCommitted &= records.isEmpty();
                if (!isCommitted && System.currentTimeMillis() - committedAt >= COMMIT_INTERVAL_MS) {
                    isCommitted = commit(consumer);
                    committedAt = System.currentTimeMillis();
                }
            }
            commit(consumer);
        }
    }

    /** Commit the positions: all records before them were written to the output. */
    private boolean commit(Consumer<byte[], byte[]> consumer) throws IOException {
        try {
            consumer.commitSync(COMMIT_TIMEOUT); // less than max.poll.interval.ms, as the process may be restarting
            return true;
        } catch (WakeupException error) {
            throw error;
        } catch (KafkaException error) {
            event("commit " + error);
            return false;
        }
    }

    private void subscribe(Consumer<byte[], byte[]> consumer) {
        ConsumerRebalanceListener listener = new ConsumerRebalanceListener() {
            @Override
            public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
                quietly("revoked " + partitions);
                if (!partitions.isEmpty() && !properties.getProperty("isolation.level", "").equals("read_committed")) {
                    try {
                        commit(consumer);
                    } catch (IOException error) {
                        throw new IllegalStateException(error);
                    }
                }
            }

            @Override
            public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
                quietly("assigned " + partitions);
            }

            @Override
            public void onPartitionsLost(Collection<TopicPartition> partitions) {
                quietly("lost " + partitions);
            }
        };
        if (!topic.startsWith("^")) {
            consumer.subscribe(List.of(topic), listener);
        } else if (properties.getProperty("group.protocol", "classic").equals("consumer")) {
            consumer.subscribe(new SubscriptionPattern(topic), listener);
        } else {
            consumer.subscribe(Pattern.compile(topic), listener);
        }
    }

    private void transform(String results, String transactionalId) throws IOException {
        while (!isStopped) {
            Properties producing = new Properties();
            producing.setProperty("bootstrap.servers", properties.getProperty("bootstrap.servers"));
            producing.setProperty("transactional.id", transactionalId);
            producing.setProperty("transaction.timeout.ms", "15000");
            try (KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(producing, new ByteArraySerializer(), new ByteArraySerializer());
                    Consumer<byte[], byte[]> consumer = new KafkaConsumer<>(properties, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
                producer.initTransactions();
                subscribe(consumer);
                while (!isStopped) {
                    ConsumerRecords<byte[], byte[]> records = consumer.poll(POLL);
                    if (!records.isEmpty()) {
                        transform(records, results, producer, consumer);
                        write(records);
                    }
                }
            } catch (KafkaException error) {
                event("again " + error);
            }
        }
    }

    /** Write the results and the offsets in one transaction. After an error, the pipeline begins at its last offsets. */
    private void transform(ConsumerRecords<byte[], byte[]> records, String results, KafkaProducer<byte[], byte[]> producer,
            Consumer<byte[], byte[]> consumer) {
        producer.beginTransaction();
        Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
        for (TopicPartition partition : records.partitions()) {
            for (ConsumerRecord<byte[], byte[]> record : records.records(partition)) {
                producer.send(new ProducerRecord<>(results, record.value()));
                offsets.put(partition, new OffsetAndMetadata(record.offset() + 1));
            }
        }
        producer.sendOffsetsToTransaction(offsets, consumer.groupMetadata());
        producer.commitTransaction();
    }

    private void write(ConsumerRecords<byte[], byte[]> records) throws IOException {
        if (records.isEmpty()) {
            return;
        }
        Set<TopicPartition> partitions = records.partitions();
        for (TopicPartition partition : partitions) {
            List<ConsumerRecord<byte[], byte[]>> read = records.records(partition);
            ConsumerRecord<byte[], byte[]> first = read.get(0);
            ConsumerRecord<byte[], byte[]> last = read.get(read.size() - 1);
            if (last.offset() - first.offset() != read.size() - 1) {
                throw new IllegalStateException("offsets " + first.offset() + " to " + last.offset() + ": " + read.size() + " records");
            }
            output.write("R\t" + System.currentTimeMillis() + "\t" + partition.partition() + "\t" + first.offset() + "\t"
                    + last.offset() + "\t" + first.timestamp() + "\t" + last.timestamp() + "\n");
        }
        output.flush();
    }

    private void quietly(String text) {
        try {
            event(text);
        } catch (IOException error) {
            throw new IllegalStateException(error);
        }
    }

    private void event(String text) throws IOException {
        output.write("E\t" + System.currentTimeMillis() + "\t" + text.replace('\n', ' ').replace('\t', ' ') + "\n");
        output.flush();
    }
}
