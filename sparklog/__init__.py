"""Read and write Apache Kafka partition logs as files, with no broker."""
