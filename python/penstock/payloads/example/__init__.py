"""tf.train.Example and SequenceExample payloads: schemas, plans of decoding and encoding."""
