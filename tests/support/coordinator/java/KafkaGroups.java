package org.apache.kafka.coordinator.group;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.reflect.Method;
import java.net.InetAddress;
import java.util.*;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.function.Supplier;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.config.AbstractConfig;
import org.apache.kafka.common.errors.ApiException;
import org.apache.kafka.common.message.ConsumerGroupHeartbeatRequestData;
import org.apache.kafka.common.message.ConsumerGroupHeartbeatResponseData;
import org.apache.kafka.common.message.AlterShareGroupOffsetsRequestData;
import org.apache.kafka.common.message.DeleteShareGroupOffsetsRequestData;
import org.apache.kafka.common.message.DeleteShareGroupOffsetsResponseData;
import org.apache.kafka.common.message.HeartbeatRequestData;
import org.apache.kafka.common.message.HeartbeatResponseData;
import org.apache.kafka.common.message.JoinGroupRequestData;
import org.apache.kafka.common.message.JoinGroupResponseData;
import org.apache.kafka.common.message.LeaveGroupRequestData;
import org.apache.kafka.common.message.LeaveGroupResponseData;
import org.apache.kafka.common.message.ShareGroupHeartbeatRequestData;
import org.apache.kafka.common.message.ShareGroupHeartbeatResponseData;
import org.apache.kafka.common.message.SyncGroupRequestData;
import org.apache.kafka.common.message.SyncGroupResponseData;
import org.apache.kafka.common.metadata.PartitionRecord;
import org.apache.kafka.common.metadata.RemoveTopicRecord;
import org.apache.kafka.common.metadata.TopicRecord;
import org.apache.kafka.common.metrics.Metrics;
import org.apache.kafka.common.metrics.Sensor;
import org.apache.kafka.common.network.ClientInformation;
import org.apache.kafka.common.network.ListenerName;
import org.apache.kafka.common.protocol.ApiKeys;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.requests.RequestContext;
import org.apache.kafka.common.requests.RequestHeader;
import org.apache.kafka.common.security.auth.KafkaPrincipal;
import org.apache.kafka.common.security.auth.SecurityProtocol;
import org.apache.kafka.common.utils.LogContext;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.coordinator.common.runtime.*;
import org.apache.kafka.coordinator.group.classic.ClassicGroup;
import org.apache.kafka.coordinator.group.generated.CoordinatorRecordJsonConverters;
import org.apache.kafka.coordinator.group.metrics.GroupCoordinatorMetricsShard;
import org.apache.kafka.coordinator.group.modern.consumer.ConsumerGroup;
import org.apache.kafka.image.MetadataDelta;
import org.apache.kafka.image.MetadataImage;
import org.apache.kafka.image.MetadataProvenance;
import org.apache.kafka.server.share.persister.InitializeShareGroupStateParameters;
import org.apache.kafka.timeline.SnapshotRegistry;

/**
 * Runs the GroupMetadataManager of Kafka 4.2.0 in simulated time: reads one operation per line as JSON, and writes its answer.
 * The answers in tests/fixtures/consumer-groups-4.2.0.jsonl.gz, mixed-groups-4.2.0.jsonl.gz and share-groups-4.2.0.jsonl.gz were recorded with it. To record them for
 * another version, compile this file with that version's jars on the class path, and give it the lines of the fixture; the second one
 * contains random member IDs of the broker, which the operations after them repeat.
 */
public class KafkaGroups {
    private static final String GROUP = "orders";
    private static final ObjectMapper JSON = new ObjectMapper();

    private static final class Clock implements Time {
        long now = 1_000_000;

        public long milliseconds() { return now; }
        public long hiResClockMs() { return now; }
        public long nanoseconds() { return now * 1_000_000; }
        public void sleep(long ms) { now += ms; }
        public void waitObject(Object object, Supplier<Boolean> condition, long deadline) { throw new UnsupportedOperationException(); }
        public org.apache.kafka.common.utils.Timer timer(long ms) { throw new UnsupportedOperationException(); }
    }

    private record Due(String key, long at, CoordinatorTimer.TimeoutOperation<Void, CoordinatorRecord> operation) {}

    private static final class Timers implements CoordinatorTimer<Void, CoordinatorRecord> {
        final Map<String, Due> due = new HashMap<>();
        final Clock clock;

        Timers(Clock clock) { this.clock = clock; }

        public void schedule(String key, long delay, TimeUnit unit, boolean retry, TimeoutOperation<Void, CoordinatorRecord> operation) {
            due.put(key, new Due(key, clock.now + unit.toMillis(delay), operation));
        }

        public void schedule(
            String key, long delay, TimeUnit unit, boolean retry, long backoff, TimeoutOperation<Void, CoordinatorRecord> operation
        ) {
            schedule(key, delay, unit, retry, operation);
        }

        public void scheduleIfAbsent(String key, long delay, TimeUnit unit, boolean retry, TimeoutOperation<Void, CoordinatorRecord> operation) {
            if (!due.containsKey(key)) schedule(key, delay, unit, retry, operation);
        }

        public void cancel(String key) { due.remove(key); }
        public boolean isScheduled(String key) { return due.containsKey(key); }

        Optional<Due> next(long end) {
            return due.values().stream().filter(timer -> timer.at <= end).min(Comparator.<Due>comparingLong(Due::at).thenComparing(Due::key));
        }
    }

    private static final class Tasks implements CoordinatorExecutor<CoordinatorRecord> {
        final Map<String, Supplier<CoordinatorResult<Void, CoordinatorRecord>>> tasks = new LinkedHashMap<>();

        public <R> boolean schedule(String key, TaskRunnable<R> task, TaskOperation<CoordinatorRecord, R> operation) {
            return tasks.putIfAbsent(key, () -> {
                try {
                    return operation.onComplete(task.run(), null);
                } catch (Throwable error) {
                    return operation.onComplete(null, error);
                }
            }) == null;
        }

        public boolean isScheduled(String key) { return tasks.containsKey(key); }
        public void cancel(String key) { tasks.remove(key); }
    }

    private final Clock clock = new Clock();
    private final Timers timers = new Timers(clock);
    private final Tasks tasks = new Tasks();
    private final Map<Integer, CompletableFuture<?>> replies = new HashMap<>();
    private final GroupMetadataManager groups;
    private MetadataImage image = MetadataImage.EMPTY;
    private long version = 0;

    private KafkaGroups(JsonNode config) {
        Map<String, Object> settings = new HashMap<>();
        config.fields().forEachRemaining(setting -> settings.put(setting.getKey(), setting.getValue().asText()));
        SnapshotRegistry snapshots = new SnapshotRegistry(new LogContext());
        Metrics metrics = new Metrics();
        Map<String, Sensor> sensors = new HashMap<>() {
            public Sensor get(Object name) { return metrics.sensor((String) name); }
        };
        groups = new GroupMetadataManager.Builder()
            .withSnapshotRegistry(snapshots)
            .withLogContext(new LogContext())
            .withTime(clock)
            .withTimer(timers)
            .withExecutor(tasks)
            .withConfig(new GroupCoordinatorConfig(new AbstractConfig(GroupCoordinatorConfig.CONFIG_DEF, settings, false)))
            .withMetadataImage(new KRaftCoordinatorMetadataImage(image))
            .withGroupCoordinatorMetricsShard(
                new GroupCoordinatorMetricsShard(snapshots, sensors, new TopicPartition("__consumer_offsets", 0)))
            .withGroupConfigManager(new GroupConfigManager(Map.of()))
            .build();
    }

    public static void main(String[] arguments) throws Exception {
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in));
        KafkaGroups kafka = null;
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            ObjectNode operation = (ObjectNode) JSON.readTree(line);
            if (operation.get("op").asText().equals("reset")) kafka = new KafkaGroups(operation.get("config"));
            operation.set("answer", kafka.answer(operation));
            System.out.println(JSON.writeValueAsString(operation));
            System.out.flush();
        }
    }

    private ObjectNode answer(JsonNode operation) throws Exception {
        ObjectNode answer = JSON.createObjectNode();
        switch (operation.get("op").asText()) {
            case "reset" -> { }
            case "create", "extend", "delete" -> changeTopics(operation);
            case "load" -> groups.onLoaded();
            case "sleep" -> {
                answer.set("records", sleep(operation.get("ms").asLong()));
                addReplies(answer);
            }
            case "exec" -> answer.set("records", runTasks());
            case "hb" -> heartbeat(operation, answer);
            case "join", "sync", "beat", "leave" -> classic(operation, answer);
            case "share", "initialized", "not-initialized", "alter", "delete-offsets", "deleted", "delete-states", "forget"
                -> share(operation, answer);
            default -> throw new IllegalArgumentException(operation.toString());
        }
        return answer;
    }

    private void changeTopics(JsonNode operation) {
        MetadataDelta delta = new MetadataDelta(image);
        Uuid id = Uuid.fromString(operation.get("id").asText());
        if (operation.get("op").asText().equals("delete")) delta.replay(new RemoveTopicRecord().setTopicId(id));
        if (operation.get("op").asText().equals("create")) {
            delta.replay(new TopicRecord().setTopicId(id).setName(operation.get("name").asText()));
        }
        for (int partition = operation.path("from").asInt(0); partition < operation.path("partitions").asInt(0); partition++) {
            delta.replay(new PartitionRecord().setTopicId(id).setPartitionId(partition).setReplicas(List.of(0)));
        }
        image = delta.apply(new MetadataProvenance(++version, 0, 0L, true));
        groups.onNewMetadataImage(new KRaftCoordinatorMetadataImage(image), new KRaftCoordinatorMetadataDelta(delta));
    }

    private ArrayNode sleep(long ms) throws Exception {
        ArrayNode records = JSON.createArrayNode();
        long end = clock.now + ms;
        for (Optional<Due> due = timers.next(end); due.isPresent(); due = timers.next(end)) {
            timers.cancel(due.get().key);
            clock.now = Math.max(clock.now, due.get().at);
            records.addAll(written(due.get().operation.generateRecords()));
        }
        clock.now = end;
        return records;
    }

    private ArrayNode runTasks() throws Exception {
        ArrayNode records = JSON.createArrayNode();
        List<Supplier<CoordinatorResult<Void, CoordinatorRecord>>> planned = new ArrayList<>(tasks.tasks.values());
        tasks.tasks.clear();
        for (Supplier<CoordinatorResult<Void, CoordinatorRecord>> task : planned) records.addAll(replayed(task.get().records()));
        return records;
    }

    private void heartbeat(JsonNode operation, ObjectNode answer) throws Exception {
        ConsumerGroupHeartbeatRequestData request = new ConsumerGroupHeartbeatRequestData()
            .setGroupId(GROUP)
            .setMemberId(operation.get("member").asText())
            .setMemberEpoch(operation.get("epoch").asInt())
            .setInstanceId(text(operation.get("instance")))
            .setRackId(text(operation.get("rack")))
            .setRebalanceTimeoutMs(operation.path("timeout").asInt(-1))
            .setSubscribedTopicNames(operation.has("topics") ? texts(operation.get("topics")) : null)
            .setSubscribedTopicRegex(text(operation.get("regex")))
            .setServerAssignor(text(operation.get("assignor")))
            .setTopicPartitions(operation.has("owned") ? partitions(operation.get("owned")) : null);
        try {
            CoordinatorResult<ConsumerGroupHeartbeatResponseData, CoordinatorRecord> result = groups.consumerGroupHeartbeat(
                context(ApiKeys.CONSUMER_GROUP_HEARTBEAT, 1), request);
            ConsumerGroupHeartbeatResponseData response = result.response();
            answer.put("error", 0).put("member", response.memberId()).put("epoch", response.memberEpoch()).putNull("assignment");
            if (response.assignment() != null) {
                ObjectNode assignment = answer.putObject("assignment");
                response.assignment().topicPartitions().forEach(topic -> {
                    ArrayNode numbers = assignment.putArray(topic.topicId().toString());
                    topic.partitions().forEach(numbers::add);
                });
            }
            answer.set("records", written(result));
        } catch (ApiException error) {
            answer.put("error", Errors.forException(error).code()).put("message", error.getMessage()).putArray("records");
        }
        addReplies(answer);
    }

    /** A heartbeat of a share group, or a change of the states of its share partitions. */
    private void share(JsonNode operation, ObjectNode answer) throws Exception {
        List<CoordinatorRecord> records = new ArrayList<>();
        try {
            switch (operation.get("op").asText()) {
                case "share" -> {
                    var result = groups.shareGroupHeartbeat(context(ApiKeys.SHARE_GROUP_HEARTBEAT, 1), new ShareGroupHeartbeatRequestData()
                        .setGroupId(GROUP).setMemberId(operation.get("member").asText()).setMemberEpoch(operation.get("epoch").asInt())
                        .setRackId(text(operation.get("rack")))
                        .setSubscribedTopicNames(operation.has("topics") ? texts(operation.get("topics")) : null));
                    ShareGroupHeartbeatResponseData response = result.response().getKey();
                    answer.put("member", response.memberId()).put("epoch", response.memberEpoch()).putNull("assignment");
                    if (response.assignment() != null) {
                        ObjectNode assignment = answer.putObject("assignment");
                        response.assignment().topicPartitions().forEach(topic -> {
                            ArrayNode numbers = assignment.putArray(topic.topicId().toString());
                            topic.partitions().forEach(numbers::add);
                        });
                    }
                    records.addAll(result.records());
                    if (result.response().getValue().isPresent()) initialization(result.response().getValue().get(), answer);
                }
                case "initialized" -> records.addAll(groups.initializeShareGroupState(GROUP, sets(operation.get("partitions"))).records());
                case "not-initialized" -> records.addAll(groups.uninitializeShareGroupState(GROUP, sets(operation.get("partitions"))).records());
                case "alter" -> {
                    var topics = new AlterShareGroupOffsetsRequestData.AlterShareGroupOffsetsRequestTopicCollection();
                    operation.get("offsets").fields().forEachRemaining(topic -> {
                        var entry = new AlterShareGroupOffsetsRequestData.AlterShareGroupOffsetsRequestTopic().setTopicName(topic.getKey());
                        topic.getValue().fields().forEachRemaining(partition -> entry.partitions().add(
                            new AlterShareGroupOffsetsRequestData.AlterShareGroupOffsetsRequestPartition()
                                .setPartitionIndex(Integer.parseInt(partition.getKey())).setStartOffset(partition.getValue().asLong())));
                        topics.add(entry);
                    });
                    var result = groups.alterShareGroupOffsets(GROUP, topics);
                    ObjectNode altered = answer.putObject("topics");
                    result.response().getKey().responses().forEach(topic -> {
                        ObjectNode errors = altered.putObject(topic.topicName());
                        topic.partitions().forEach(partition -> errors.put("" + partition.partitionIndex(), partition.errorCode()));
                    });
                    records.addAll(result.records());
                    initialization(result.response().getValue(), answer);
                }
                case "delete-offsets" -> {
                    groups.shareGroup(GROUP).validateDeleteGroup();
                    var request = new DeleteShareGroupOffsetsRequestData().setGroupId(GROUP);
                    operation.get("topics").forEach(name -> request.topics().add(
                        new DeleteShareGroupOffsetsRequestData.DeleteShareGroupOffsetsRequestTopic().setTopicName(name.asText())));
                    List<DeleteShareGroupOffsetsResponseData.DeleteShareGroupOffsetsResponseTopic> failed = new ArrayList<>();
                    ObjectNode deletion = answer.putObject("deletion");
                    groups.sharePartitionsEligibleForOffsetDeletion(GROUP, request, failed, records).forEach(topic -> {
                        ArrayNode numbers = deletion.putArray(topic.topicId().toString());
                        topic.partitions().forEach(partition -> numbers.add(partition.partition()));
                    });
                    ObjectNode errors = answer.putObject("errors");
                    failed.forEach(topic -> errors.put(topic.topicName(), topic.errorMessage()));
                }
                case "deleted" -> {
                    Map<Uuid, String> topics = new HashMap<>();
                    operation.get("topics").forEach(topic -> topics.put(Uuid.fromString(topic.asText()), ""));
                    groups.completeDeleteShareGroupOffsets(GROUP, topics, records);
                }
                case "delete-states" -> {
                    groups.shareGroup(GROUP).validateDeleteGroup();
                    ObjectNode deletion = answer.putObject("deletion");
                    groups.shareGroupBuildPartitionDeleteRequest(GROUP, records).ifPresent(request ->
                        request.groupTopicPartitionData().topicsData().forEach(topic -> {
                            ArrayNode numbers = deletion.putArray(topic.topicId().toString());
                            topic.partitions().forEach(partition -> numbers.add(partition.partition()));
                        }));
                }
                default -> records.addAll(groups.maybeCleanupShareGroupState(Set.of(Uuid.fromString(operation.get("id").asText()))).records());
            }
            answer.put("error", 0);
        } catch (ApiException error) {
            answer.put("error", Errors.forException(error).code()).put("message", error.getMessage());
        }
        answer.set("records", replayed(records));
    }

    private static void initialization(InitializeShareGroupStateParameters request, ObjectNode answer) {
        ObjectNode topics = answer.putObject("initialization");
        request.groupTopicPartitionData().topicsData().forEach(topic -> {
            ObjectNode offsets = topics.putObject(topic.topicId().toString());
            topic.partitions().forEach(partition -> {
                offsets.put("" + partition.partition(), partition.startOffset());
                answer.put("stateEpoch", partition.stateEpoch());
            });
        });
    }

    private static Map<Uuid, Set<Integer>> sets(JsonNode topics) {
        Map<Uuid, Set<Integer>> sets = new HashMap<>();
        topics.fields().forEachRemaining(topic -> {
            Set<Integer> numbers = sets.computeIfAbsent(Uuid.fromString(topic.getKey()), id -> new HashSet<>());
            topic.getValue().forEach(number -> numbers.add(number.asInt()));
        });
        return sets;
    }

    /** A request of a member with the classic protocol; its reply may come with a later operation. */
    private void classic(JsonNode operation, ObjectNode answer) throws Exception {
        String member = operation.get("member").asText();
        String instance = text(operation.get("instance"));
        int generation = operation.path("generation").asInt();
        Set<String> known = memberIds();
        try {
            CoordinatorResult<?, CoordinatorRecord> result;
            switch (operation.get("op").asText()) {
                case "join" -> {
                    CompletableFuture<JoinGroupResponseData> reply = new CompletableFuture<>();
                    replies.put(operation.get("token").asInt(), reply);
                    result = groups.classicGroupJoin(context(ApiKeys.JOIN_GROUP, 9), joinRequest(operation, member, instance), reply);
                }
                case "sync" -> {
                    CompletableFuture<SyncGroupResponseData> reply = new CompletableFuture<>();
                    replies.put(operation.get("token").asInt(), reply);
                    SyncGroupRequestData request = new SyncGroupRequestData().setGroupId(GROUP).setMemberId(member)
                        .setGroupInstanceId(instance).setGenerationId(generation).setProtocolType("consumer").setProtocolName("range");
                    operation.path("assignments").fields().forEachRemaining(entry -> request.assignments().add(
                        new SyncGroupRequestData.SyncGroupRequestAssignment().setMemberId(entry.getKey()).setAssignment(bytes(entry.getValue()))));
                    result = groups.classicGroupSync(context(ApiKeys.SYNC_GROUP, 5), request, reply);
                }
                case "beat" -> {
                    CoordinatorResult<HeartbeatResponseData, CoordinatorRecord> beat = groups.classicGroupHeartbeat(
                        context(ApiKeys.HEARTBEAT, 4),
                        new HeartbeatRequestData().setGroupId(GROUP).setMemberId(member).setGroupInstanceId(instance).setGenerationId(generation));
                    answer.put("error", beat.response().errorCode());
                    result = beat;
                }
                default -> {
                    CoordinatorResult<LeaveGroupResponseData, CoordinatorRecord> left = groups.classicGroupLeave(
                        context(ApiKeys.LEAVE_GROUP, 5), new LeaveGroupRequestData().setGroupId(GROUP).setMembers(List.of(
                            new LeaveGroupRequestData.MemberIdentity().setMemberId(member).setGroupInstanceId(instance))));
                    answer.put("error", left.response().members().get(0).errorCode());
                    result = left;
                }
            }
            answer.set("records", written(result));
        } catch (ApiException error) {
            answer.put("error", Errors.forException(error).code()).putArray("records");
            if (operation.has("token")) replies.remove(operation.get("token").asInt());
        }
        addReplies(answer);
        Set<String> created = memberIds();
        created.removeAll(known);
        if (!created.isEmpty()) answer.put("created", created.iterator().next());
    }

    private static JoinGroupRequestData joinRequest(JsonNode operation, String member, String instance) {
        JoinGroupRequestData.JoinGroupRequestProtocolCollection protocols = new JoinGroupRequestData.JoinGroupRequestProtocolCollection();
        protocols.add(new JoinGroupRequestData.JoinGroupRequestProtocol().setName("range").setMetadata(bytes(operation.get("subscription"))));
        return new JoinGroupRequestData().setGroupId(GROUP).setMemberId(member).setGroupInstanceId(instance).setProtocolType("consumer")
            .setSessionTimeoutMs(operation.get("session").asInt()).setRebalanceTimeoutMs(operation.get("timeout").asInt()).setProtocols(protocols);
    }

    private Set<String> memberIds() {
        Set<String> ids = new HashSet<>();
        try {
            Group group = groups.group(GROUP);
            if (group instanceof ClassicGroup classic) classic.allMembers().forEach(member -> ids.add(member.memberId()));
            if (group instanceof ConsumerGroup consumer) ids.addAll(consumer.members().keySet());
        } catch (ApiException missing) {
            return ids;
        }
        return ids;
    }

    /** Adds the replies to requests of the classic protocol since the previous operation. */
    private void addReplies(ObjectNode answer) throws Exception {
        ObjectNode sent = JSON.createObjectNode();
        for (Map.Entry<Integer, CompletableFuture<?>> reply : new TreeMap<>(replies).entrySet()) {
            if (!reply.getValue().isDone()) continue;
            replies.remove(reply.getKey());
            ObjectNode entry = sent.putObject(reply.getKey().toString());
            if (reply.getValue().get() instanceof JoinGroupResponseData joined) {
                entry.put("error", joined.errorCode()).put("member", joined.memberId()).put("generation", joined.generationId())
                    .put("protocol", joined.protocolName()).put("leader", joined.leader()).put("skip", joined.skipAssignment());
                ObjectNode members = entry.putObject("members");
                joined.members().forEach(member -> members.put(member.memberId(), member.metadata()));
            } else if (reply.getValue().get() instanceof SyncGroupResponseData synced) {
                entry.put("error", synced.errorCode()).put("assignment", synced.assignment());
            }
        }
        if (!sent.isEmpty()) answer.set("replies", sent);
    }

    private static RequestContext context(ApiKeys api, int version) {
        return new RequestContext(
            new RequestHeader(api, (short) version, "client", 0), "1", InetAddress.getLoopbackAddress(),
            KafkaPrincipal.ANONYMOUS, ListenerName.forSecurityProtocol(SecurityProtocol.PLAINTEXT), SecurityProtocol.PLAINTEXT,
            ClientInformation.EMPTY, false);
    }

    private static byte[] bytes(JsonNode base64) { return Base64.getDecoder().decode(base64.asText()); }

    private ArrayNode written(CoordinatorResult<?, CoordinatorRecord> result) throws Exception {
        ArrayNode records = result.replayRecords() ? replayed(result.records()) : json(result.records());
        if (result.appendFuture() != null) result.appendFuture().complete(null);
        return records;
    }

    private ArrayNode replayed(List<CoordinatorRecord> records) throws Exception {
        for (CoordinatorRecord record : records) {
            for (Method method : GroupMetadataManager.class.getMethods()) {
                if (method.getName().equals("replay") && method.getParameterTypes()[0] == record.key().getClass()) {
                    method.invoke(groups, record.key(), record.value() == null ? null : record.value().message());
                }
            }
        }
        return json(records);
    }

    private static ArrayNode json(List<CoordinatorRecord> records) {
        ArrayNode written = JSON.createArrayNode();
        for (CoordinatorRecord record : records) {
            ObjectNode key = (ObjectNode) CoordinatorRecordJsonConverters.writeRecordKeyAsJson(record.key());
            key.remove("groupId");
            ObjectNode entry = written.addObject().put("type", record.key().apiKey());
            entry.set("key", key);
            entry.set("value", record.value() == null ? JSON.nullNode()
                : CoordinatorRecordJsonConverters.writeRecordValueAsJson(record.value().message(), record.value().version()));
        }
        return written;
    }

    private static String text(JsonNode node) { return node == null ? null : node.asText(); }

    private static List<String> texts(JsonNode node) {
        List<String> texts = new ArrayList<>();
        node.forEach(text -> texts.add(text.asText()));
        return texts;
    }

    private static List<ConsumerGroupHeartbeatRequestData.TopicPartitions> partitions(JsonNode owned) {
        List<ConsumerGroupHeartbeatRequestData.TopicPartitions> topics = new ArrayList<>();
        owned.fields().forEachRemaining(topic -> {
            List<Integer> numbers = new ArrayList<>();
            topic.getValue().forEach(number -> numbers.add(number.asInt()));
            topics.add(new ConsumerGroupHeartbeatRequestData.TopicPartitions()
                .setTopicId(Uuid.fromString(topic.getKey())).setPartitions(numbers));
        });
        return topics;
    }
}
