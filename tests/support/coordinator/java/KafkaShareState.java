package org.apache.kafka.coordinator.share;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.*;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.config.AbstractConfig;
import org.apache.kafka.common.protocol.ApiMessage;
import org.apache.kafka.common.utils.LogContext;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.coordinator.common.runtime.CoordinatorRecord;
import org.apache.kafka.coordinator.share.generated.*;
import org.apache.kafka.server.common.ApiMessageAndVersion;
import org.apache.kafka.server.share.SharePartitionKey;
import org.apache.kafka.timeline.SnapshotRegistry;

/**
 * Runs the replay of the ShareCoordinatorShard of Kafka 4.2.0: reads the records of one share partition per line as a JSON array, and
 * writes the line with the state after each record. The answers in tests/fixtures/share-state-4.2.0.jsonl.gz were recorded with it. To
 * record them for another version, compile this file with that version's jars on the class path, and give it the lines of the fixture.
 */
public class KafkaShareState {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final Uuid TOPIC = new Uuid(1, 2);

    private static ShareCoordinatorShard shard() {
        return new ShareCoordinatorShard(
            new LogContext(),
            new ShareCoordinatorConfig(new AbstractConfig(ShareCoordinatorConfig.CONFIG_DEF, Map.of(), false)),
            null,  // metrics, which replaying does not use
            null,
            new SnapshotRegistry(new LogContext()),
            Time.SYSTEM);
    }

    public static void main(String[] arguments) throws Exception {
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            ShareCoordinatorShard shard = shard();
            SharePartitionKey key = SharePartitionKey.getInstance("g", TOPIC, 0);
            ArrayNode answers = JSON.createArrayNode();
            long offset = 0;
            for (JsonNode operation : JSON.readTree(line)) {
                ObjectNode answer = ((ObjectNode) operation).deepCopy();
                shard.replay(offset++, -1, (short) -1, record(operation.get("record")));
                answer.set("state", state(shard, key));
                answers.add(answer);
            }
            System.out.println(JSON.writeValueAsString(answers));
        }
    }

    private static CoordinatorRecord record(JsonNode node) {
        boolean update = node.path("kind").asText().equals("update");
        ApiMessage key = update
            ? new ShareUpdateKey().setGroupId("g").setTopicId(TOPIC).setPartition(0)
            : new ShareSnapshotKey().setGroupId("g").setTopicId(TOPIC).setPartition(0);
        if (node.path("kind").asText().equals("tombstone"))
            return CoordinatorRecord.tombstone(key);
        List<ShareUpdateValue.StateBatch> updated = new ArrayList<>();
        List<ShareSnapshotValue.StateBatch> batches = new ArrayList<>();
        for (JsonNode batch : node.get("batches")) {
            updated.add(new ShareUpdateValue.StateBatch().setFirstOffset(batch.get(0).asLong()).setLastOffset(batch.get(1).asLong())
                .setDeliveryCount((short) batch.get(2).asInt()).setDeliveryState((byte) batch.get(3).asInt()));
            batches.add(new ShareSnapshotValue.StateBatch().setFirstOffset(batch.get(0).asLong()).setLastOffset(batch.get(1).asLong())
                .setDeliveryCount((short) batch.get(2).asInt()).setDeliveryState((byte) batch.get(3).asInt()));
        }
        int snapshotEpoch = node.get("snapshot_epoch").asInt();
        int leaderEpoch = node.get("leader_epoch").asInt();
        long startOffset = node.get("start_offset").asLong();
        int complete = node.get("delivery_complete_count").asInt();
        ApiMessage value = update
            ? new ShareUpdateValue().setSnapshotEpoch(snapshotEpoch).setLeaderEpoch(leaderEpoch).setStartOffset(startOffset)
                .setDeliveryCompleteCount(complete).setStateBatches(updated)
            : new ShareSnapshotValue().setSnapshotEpoch(snapshotEpoch).setLeaderEpoch(leaderEpoch).setStartOffset(startOffset)
                .setDeliveryCompleteCount(complete).setStateBatches(batches).setStateEpoch(node.get("state_epoch").asInt())
                .setCreateTimestamp(node.get("create_timestamp").asLong()).setWriteTimestamp(node.get("write_timestamp").asLong());
        return CoordinatorRecord.record(key, new ApiMessageAndVersion(value, (short) 0));
    }

    private static JsonNode state(ShareCoordinatorShard shard, SharePartitionKey key) {
        ShareGroupOffset state = shard.getShareStateMapValue(key);
        if (state == null)
            return JSON.nullNode();
        ObjectNode answer = JSON.createObjectNode()
            .put("snapshot_epoch", state.snapshotEpoch()).put("state_epoch", state.stateEpoch()).put("leader_epoch", state.leaderEpoch())
            .put("start_offset", state.startOffset()).put("delivery_complete_count", state.deliveryCompleteCount())
            .put("create_timestamp", state.createTimestamp()).put("write_timestamp", state.writeTimestamp())
            .put("highest_state_epoch", shard.getStateEpochMapValue(key)).put("highest_leader_epoch", shard.getLeaderMapValue(key));
        ArrayNode batches = answer.putArray("batches");
        state.stateBatches().forEach(batch -> batches.addArray()
            .add(batch.firstOffset()).add(batch.lastOffset()).add(batch.deliveryCount()).add(batch.deliveryState()));
        return answer;
    }
}
