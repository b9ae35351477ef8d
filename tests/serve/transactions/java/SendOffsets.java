import java.util.HashMap;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Transactions of offsets, and nothing else, by Kafka's own producer.
 *
 * Arguments: bootstrap, transactional id, then one a transaction: GROUP:TOPIC:PARTITION:OFFSET:END, END being commit,
 * abort, zombie (another producer of the same id begins, and commits) or open. Prints how each ended.
 */
public class SendOffsets {
    public static void main(String[] arguments) {
        KafkaProducer<byte[], byte[]> producer = producer(arguments[0], arguments[1]);
        for (int at = 2; at < arguments.length; at++) {
            String[] of = arguments[at].split(":");
            producer.beginTransaction();
            send(producer, of);
            switch (of[4]) {
                case "commit" -> producer.commitTransaction();
                case "abort" -> producer.abortTransaction();
                case "zombie" -> {
                    producer(arguments[0], arguments[1]).close();
                    try {
                        producer.commitTransaction();
                    } catch (RuntimeException error) {
                        System.out.println(error.getClass().getSimpleName());
                    }
                }
                default -> System.exit(0);
            }
            System.out.println(of[4]);
        }
        producer.close();
    }

    private static KafkaProducer<byte[], byte[]> producer(String bootstrap, String id) {
        Properties of = new Properties();
        of.put("bootstrap.servers", bootstrap);
        of.put("transactional.id", id);
        of.put("transaction.timeout.ms", "600000");
        of.put("max.block.ms", "20000");
        KafkaProducer<byte[], byte[]> made =
            new KafkaProducer<>(of, new ByteArraySerializer(), new ByteArraySerializer());
        made.initTransactions();
        return made;
    }

    private static void send(KafkaProducer<byte[], byte[]> producer, String[] of) {
        Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
        offsets.put(
            new TopicPartition(of[1], Integer.parseInt(of[2])),
            new OffsetAndMetadata(Long.parseLong(of[3]), "by java"));
        producer.sendOffsetsToTransaction(offsets, new ConsumerGroupMetadata(of[0]));
    }
}
