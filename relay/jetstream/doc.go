// Package jetstream publishes outbox events to NATS JetStream as CloudEvents.
//
// A [Publisher] owns one connection that outlives every outage: the library's
// own reconnects, and a new connection where the library gives one up for
// good. It publishes with core NATS under a reply inbox of its own, because it
// needs what the library's asynchronous publisher hides: the raw answer, what
// is known to be unsent, and refusals that arrive out of band.
//
// Nothing is ever published into the client's reconnect buffer: without a
// connection Publish returns an error and the event stays in the outbox. What
// had been handed to a connection that then broke, flushed or not, is
// reported as unanswered, for it may or may not have arrived.
package jetstream
