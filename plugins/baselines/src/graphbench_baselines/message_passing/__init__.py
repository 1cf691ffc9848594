"""Networks whose nodes receive messages only from their neighbours."""
