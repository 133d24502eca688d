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
	moveRetry      move = "retry"      //
	moveRelease    move = "release"    //
	moveRenew      move = "renew"      //
	moveQuarantine move = "quarantine" //
	moveSetAside   move = "set aside"  // a row that a claim cannot hand out
	moveExpel      move = "expel"      // likewise, of an expired claim
	moveRequeue    move = "requeue"    // operator
	moveDismiss    move = "dismiss"    // operator, pending to quarantined
	moveFinalize   move = "finalize"   // import
)

// moves are the legal ones. Delivered is the end: nothing leaves it but by
// pruning.
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
