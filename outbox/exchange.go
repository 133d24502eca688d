package outbox

import (
	"context"
	"time"
)

// Exchanged is the result of an exchange.
type Exchanged struct {
	Settled  []Settled
	Claimed  []Claimed
	ClaimErr error         // the claim's own failure; the settlements stand
	Held     time.Duration // how long the writer slot was held
}

// Exchange settles batch and then claims, in one writer transaction. A claim
// with Limit 0 claims nothing. The claim runs inside a savepoint: when it fails,
// ClaimErr is set and the settlements are committed all the same. The error is
// for what took back both.
func (h *Handle) Exchange(ctx context.Context, batch []Settlement, claim ClaimRequest) (Exchanged, error) {
	panic("todo")
}
