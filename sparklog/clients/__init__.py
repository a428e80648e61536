"""A producer and a consumer for log directories, with the interfaces of Kafka's own clients and without a broker."""
