"""tf.train.Example and SequenceExample payloads: schemas, and plans for decoding and encoding."""
