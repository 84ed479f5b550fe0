"""The zookeeper backend: options, sessions, queues, and what servers and networks do to them."""
