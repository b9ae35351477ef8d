"""Kafka's compression codecs, by libraries."""

from aiokafka.codec import gzip_decode, lz4_decode, snappy_decode, zstd_decode

from offsetlake.errors import CorruptBatch

DECODERS = {1: gzip_decode, 2: snappy_decode, 3: lz4_decode, 4: zstd_decode}


def decompress(codec: int, data: bytes) -> bytes:
    """Decompress the records of a batch; CorruptBatch where no codec, 1 to 4, can have written them."""
    if codec not in DECODERS:
        raise CorruptBatch(f"the batch names compression codec {codec}, which Kafka does not have")
    try:
        return bytes(DECODERS[codec](data))
    except Exception as error:  # each codec has its own errors, and all mean the same here
        raise CorruptBatch(f"the batch cannot be decompressed ({DECODERS[codec].__name__}: {error})") from error
