"""What Kafka's internal topics say: its messages by its own definitions, and the tables that are made of them."""
