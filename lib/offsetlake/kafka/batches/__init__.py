"""Record batches and the older message sets: framing, compression, reading into columns, and writing."""
