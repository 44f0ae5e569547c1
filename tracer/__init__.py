"""Events of the persistent batch: schema, recorder, log, fold and gate."""
