"""The settings of share partitions, with the default values of a broker (`ShareGroupConfig` in Kafka)."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ShareSettings:
    """Limits of one share partition; brokers refuse 0. At least one record can be in flight, even if the limit is 0.

    | Field                   | Setting of a broker                    | Description                               |
    |-------------------------|----------------------------------------|-------------------------------------------|
    | max_in_flight_records   | group.share.partition.max.record.locks | The most records in flight                |
    | max_delivery_count      | group.share.delivery.count.limit       | The deliveries until a record is archived |
    | record_lock_duration_ms | group.share.record.lock.duration.ms    | How long a member keeps a record, in ms   |
    """

    max_in_flight_records: int = 2_000
    max_delivery_count: int = 5
    record_lock_duration_ms: int = 30_000

    @property
    def throttled_delivery_count(self) -> int:
        """The delivery count from which records are delivered in fewer and fewer at a time."""
        return max(2, -(-self.max_delivery_count // 2))
