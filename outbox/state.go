package outbox

// State is a delivery's state.
type State string

const (
	Pending     State = "pending"
	InClaim     State = "claimed"
	Delivered   State = "delivered"
	Quarantined State = "quarantined"
)

// move is a change of a delivery's state, by a worker or by an operator.
type move string

const (
	moveClaim      move = "claim"      // pending and due
	moveReclaim    move = "reclaim"    // another claim's lease has expired
	moveAck        move = "ack"        // this and the next four: by the claim's token
	moveRetry      move = "retry"      // with a failure, after a while
	moveRelease    move = "release"    // without one
	moveRenew      move = "renew"      // a longer lease
	moveQuarantine move = "quarantine" // with a reason
	moveSetAside   move = "set aside"  // a due row that a claim cannot hand out
	moveExpel      move = "expel"      // likewise, of an expired claim
	moveRequeue    move = "requeue"    // by an operator
	moveDismiss    move = "dismiss"    // by an operator
	moveFinalize   move = "finalize"   // by an import
)

// moves are the legal ones; each is one UPDATE whose WHERE clause says so.
// Delivered is the end: nothing leaves it but by pruning.
var moves = map[move]struct{ from, to State }{
	moveClaim:      {Pending, InClaim},
	moveReclaim:    {InClaim, InClaim},
	moveAck:        {InClaim, Delivered},
	moveRetry:      {InClaim, Pending},
	moveRelease:    {InClaim, Pending},
	moveRenew:      {InClaim, InClaim},
	moveQuarantine: {InClaim, Quarantined},
	moveSetAside:   {Pending, Quarantined},
	moveExpel:      {InClaim, Quarantined},
	moveRequeue:    {Quarantined, Pending},
	moveDismiss:    {Pending, Quarantined},
	moveFinalize:   {Pending, Delivered},
}
