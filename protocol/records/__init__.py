"""Record batches (magic 2): reading, checking, writing, compressing; records and columns."""
