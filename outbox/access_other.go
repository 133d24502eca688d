//go:build !unix

package outbox

// writable cannot tell here; SQLite will.
func writable(string, bool) error { return nil }

func readable(string) error { return nil }
