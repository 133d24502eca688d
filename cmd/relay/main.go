// Command relay publishes the events of a SQLite outbox to NATS JetStream.
package main

func main() {}
